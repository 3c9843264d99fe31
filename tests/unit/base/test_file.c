/* SPDX-License-Identifier: MIT */
/*
 * Reading files: signals, short reads, failing disks and files that shrink, by a pread of our own.
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

static ssize_t fake_pread(int fd, void *buf, size_t n, off_t offset);
#define pread fake_pread
#include "base/file.c"
#undef pread

#include "test.h"

/* What the fake does, call by call: bytes to give, or an error; the last row repeats. */
struct step {
    ssize_t n;
    int error;
};

static const struct step *plan;
static int n_steps, at_step;

static ssize_t fake_pread(int fd, void *buf, size_t n, off_t offset)
{
    (void)fd;
    const struct step *s = &plan[at_step < n_steps - 1 ? at_step++ : n_steps - 1];
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
    REQUIRE_EQ_INT(read_by(shrunk, 2, buf), FILE_EIO);
    REQUIRE_EQ_INT(errno, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pread),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
