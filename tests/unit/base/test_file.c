/* SPDX-License-Identifier: MIT */
/*
 * Reading files: signals, short reads, failing disks and files that shrink, by a pread of our own.
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static ssize_t fake_pread(int fd, void *buf, size_t n, off_t offset);
#define pread fake_pread
#include "base/file.c"
#undef pread

#include "test.h"

/* One call of the fake: bytes to give (-1: those of the file), or an error. The last row repeats. */
struct step {
    ssize_t n;
    int error;
};

static const struct step *plan;
static int n_steps, at_step;

static ssize_t fake_pread(int fd, void *buf, size_t n, off_t offset)
{
    const struct step *s = &plan[at_step < n_steps - 1 ? at_step++ : n_steps - 1];
    if (s->n < 0) return pread(fd, buf, n, offset);
    if (s->error) {
        errno = s->error;
        return -1;
    }
    ssize_t given = s->n < (ssize_t)n ? s->n : (ssize_t)n;
    for (ssize_t i = 0; i < given; i++)
        ((uint8_t *)buf)[i] = (uint8_t)(offset + i);
    return given;
}

static int read_by(const struct step *steps, int n, uint8_t buf[64])
{
    plan = steps;
    n_steps = n;
    at_step = 0;
    errno = 0;
    return file_pread(-1, buf, 64, 100);
}

static void test_pread(void **state)
{
    (void)state;
    static const struct step whole[] = {{64, 0}}, bytes[] = {{1, 0}};
    static const struct step signals[] = {{0, EINTR}, {10, 0}, {0, EINTR}, {0, EINTR}, {64, 0}};
    static const struct step failing[] = {{10, 0}, {0, EIO}}, shrunk[] = {{10, 0}, {0, 0}};
    uint8_t buf[64];
    for (int i = 0; i < 3; i++) {
        memset(buf, 0, sizeof(buf));
        int rc = i == 0   ? read_by(whole, 1, buf)
                 : i == 1 ? read_by(bytes, 1, buf)
                          : read_by(signals, 5, buf);
        REQUIRE_EQ_INT(rc, 0);
        for (int j = 0; j < 64; j++)
            REQUIRE_EQ_INT(buf[j], 100 + j);
    }
    REQUIRE_EQ_INT(read_by(failing, 2, buf), FILE_EIO);
    REQUIRE_EQ_INT(errno, EIO);
    REQUIRE_EQ_STR(file_read_reason(), strerror(EIO));
    REQUIRE_EQ_INT(read_by(shrunk, 2, buf), FILE_EIO);
    REQUIRE_EQ_INT(errno, 0);
    REQUIRE_EQ_STR(file_read_reason(), "it was cut short meanwhile");
}

/* A file that can be opened, so that the rest of the way is walked. */
static void test_load(void **state)
{
    (void)state;
    static const struct step whole[] = {{1 << 20, 0}}, failing[] = {{0, EIO}}, shrunk[] = {{0, 0}};
    char err[256] = "", *text = NULL;
    size_t len = 0;
    plan = whole;
    n_steps = 1;
    REQUIRE_EQ_INT(file_load(test_source_root(), "LICENSE", 1 << 20, &text, &len, err, sizeof(err)),
                   0);
    REQUIRE(len > 500 && text[len] == '\0');
    free(text);
    text = NULL;
    REQUIRE_EQ_INT(file_load(test_source_root(), "LICENSE", 100, &text, &len, err, sizeof(err)),
                   FILE_EINVAL);
    REQUIRE_MSG(strstr(err, "LICENSE: ") && strstr(err, "the limit is 100"), "%s", err);
    plan = failing;
    REQUIRE_EQ_INT(file_load(test_source_root(), "LICENSE", 1 << 20, &text, &len, err, sizeof(err)),
                   FILE_EIO);
    REQUIRE_MSG(strstr(err, "LICENSE: cannot be read: "), "%s", err);
    plan = shrunk;
    REQUIRE_EQ_INT(file_load(test_source_root(), "LICENSE", 1 << 20, &text, &len, err, sizeof(err)),
                   FILE_EIO);
    REQUIRE_MSG(strstr(err, "cut short meanwhile"), "%s", err);
    REQUIRE(text == NULL);
}

/* Absence is not a failure, so it leaves no error text. */
static void test_load_optional(void **state)
{
    (void)state;
    char err[512] = "", *text = NULL;
    const char *dir = test_source_root();
    plan = (const struct step[]){{1 << 20, 0}};
    n_steps = 1;
    REQUIRE_EQ_INT(file_load_optional(dir, "absent", 1 << 20, &text, NULL, err, sizeof(err)), 0);
    REQUIRE(!text && !*err);
    REQUIRE_EQ_INT(file_load_optional(dir, "LICENSE", 1 << 20, &text, NULL, err, sizeof(err)), 0);
    REQUIRE(text && !*err);
    free(text);
    REQUIRE_EQ_INT(file_load_optional(dir, "LICENSE", 100, &text, NULL, err, sizeof(err)),
                   FILE_EINVAL);
    REQUIRE_MSG(strstr(err, "the limit is 100"), "%s", err);
}

static void test_open(void **state)
{
    (void)state;
    char err[512] = "", name[5000];
    int fd = -1;
    int64_t bytes = 0;
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    REQUIRE_EQ_INT(file_open("/", name, &fd, &bytes, err, sizeof(err)), FILE_EINVAL);
    REQUIRE_MSG(strstr(err, "path is longer"), "%s", err);
    REQUIRE(!file_exists("/", name));
    REQUIRE_EQ_INT(file_open("/nowhere", "x", &fd, &bytes, err, sizeof(err)), FILE_ENOENT);
    REQUIRE_EQ_INT(file_open("/", "dev/null", &fd, &bytes, err, sizeof(err)), FILE_EINVAL);
    REQUIRE_EQ_INT(fd, -1);
}

/* ---- on the real disk ---------------------------------------------------------------------- */

static const struct step real[] = {{-1, 0}};

static char *new_directory(void)
{
    static char dir[] = "/tmp/test_file_XXXXXX";
    memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
    REQUIRE(mkdtemp(dir));
    return dir;
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    REQUIRE(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void drop(const char *dir, const char *name)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    REQUIRE_EQ_INT(remove(path), 0);
}

/* A pipe that nobody writes to, a directory and a link to nothing are errors at once. */
static void test_not_regular(void **state)
{
    const char *dir = new_directory();
    char path[200], err[300] = "", *text = NULL;
    (void)state;
    snprintf(path, sizeof(path), "%s/pipe", dir);
    REQUIRE_EQ_INT(mkfifo(path, 0600), 0);
    REQUIRE_EQ_INT(file_load(dir, "pipe", 100, &text, NULL, err, sizeof(err)), FILE_EINVAL);
    REQUIRE_MSG(strncmp(err, path, strlen(path)) == 0, "%s", err);
    drop(dir, "pipe");
    REQUIRE_EQ_INT(file_load(NULL, dir, 100, &text, NULL, err, sizeof(err)), FILE_EINVAL);
    snprintf(path, sizeof(path), "%s/link", dir);
    REQUIRE_EQ_INT(symlink("nothing", path), 0);
    REQUIRE_EQ_INT(file_load(dir, "link", 100, &text, NULL, err, sizeof(err)), FILE_ENOENT);
    REQUIRE(!file_exists(dir, "link") && !text);
    drop(dir, "link");
    REQUIRE_EQ_INT(rmdir(dir), 0);
}

static void test_whole_files(void **state)
{
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    const char *dir = new_directory();
    char err[300] = "", *text = NULL;
    size_t len = 9;
    plan = real;
    n_steps = 1;
    (void)state;
    put(dir, "empty", "");
    REQUIRE(file_exists(dir, "empty") && !file_exists(dir, "other"));
    REQUIRE_EQ_INT(file_load(dir, "empty", 0, &text, &len, err, sizeof(err)), 0);
    REQUIRE(len == 0 && text[0] == '\0');
    free(text);
    drop(dir, "empty");
    put(dir, "pointer", pointer);
    text = NULL;
    REQUIRE_EQ_INT(file_load(dir, "pointer", 1000, &text, &len, err, sizeof(err)), FILE_EINVAL);
    REQUIRE_MSG(strstr(err, "git-lfs") && !text, "%s", err);
    drop(dir, "pointer");
    REQUIRE(file_is_lfs_pointer(pointer, sizeof(pointer) - 1));
    REQUIRE(!file_is_lfs_pointer(pointer, 10) && !file_is_lfs_pointer("{}", 2));
    REQUIRE_EQ_INT(rmdir(dir), 0);
}

static void test_exposed(void **state)
{
    static const struct {
        unsigned mode;
        bool exposed;
    } cases[] = {{0600, false}, {0640, false}, {0660, false}, {0644, true}, {0602, true}};
    const char *dir = new_directory();
    char path[200];
    unsigned mode = 0;
    (void)state;
    put(dir, "keys", "x");
    snprintf(path, sizeof(path), "%s/keys", dir);
    for (size_t i = 0; i < N_OF(cases); i++) {
        REQUIRE_EQ_INT(chmod(path, cases[i].mode), 0);
        REQUIRE_MSG(file_is_exposed(path, &mode) == cases[i].exposed, "%o", cases[i].mode);
        if (cases[i].exposed) REQUIRE_EQ_INT(mode, cases[i].mode);
    }
    drop(dir, "keys");
    REQUIRE(!file_is_exposed(path, &mode));
    REQUIRE_EQ_INT(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pread),         cmocka_unit_test(test_load),
        cmocka_unit_test(test_load_optional), cmocka_unit_test(test_open),
        cmocka_unit_test(test_not_regular),   cmocka_unit_test(test_whole_files),
        cmocka_unit_test(test_exposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
