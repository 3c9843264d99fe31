/* SPDX-License-Identifier: MIT */
/* The options table as text: --help and --print-config. Main thread only. */
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "server/config/config.h"
#include "server/config/options.h"

const struct srv_command_text srv_commands[SRV_CMD_COUNT] = {
    [SRV_CMD_SERVE] =
        {"serve", "serve a model over HTTP (the default)",
         "  hearth serve                                       the demo model, on 127.0.0.1:8080\n"
         "  hearth serve --model /path/to/model --port 8000    a Hugging Face directory\n"
         "  hearth serve --model org/name --host 0.0.0.0 --api-key-file keys    for others too\n"
         "  hearth serve --model chat=org/name --model embed=org/other          several models\n"},
    [SRV_CMD_GENERATE] = {"generate", "continue a prompt on the terminal",
                          "  hearth generate --prompt 'Once upon a time' -n 100\n"
                          "  hearth generate --model org/name --chat --prompt - <question.txt\n"},
    [SRV_CMD_BATCH] =
        {"batch", "answer a file of requests, without a server",
         "  hearth batch requests.jsonl -o answers.jsonl --model org/name\n"
         "  hearth batch requests.jsonl -o answers.jsonl --model org/name --resume\n"
         "  echo '{\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/completions\", "
         "\"body\": {\"prompt\": \"Once\"}}' | hearth batch - -o -\n"},
    [SRV_CMD_BENCH] =
        {"bench", "measure prefill and decode speed",
         "  hearth bench --model org/name --prefill 128,512 --decode 128 --batch 1,4,16\n"},
    [SRV_CMD_INSPECT] = {"inspect", "show what a model directory holds",
                         "  hearth inspect /path/to/model\n"},
    [SRV_CMD_HEALTHCHECK] = {"healthcheck", "ask a running server whether it is ready",
                             "  hearth healthcheck http://127.0.0.1:8080/readyz\n"},
    [SRV_CMD_PULL] = {"pull", "fetch a model from the Hugging Face hub into its cache",
                      "  hearth pull HuggingFaceTB/SmolLM2-135M-Instruct\n"
                      "  hearth pull org/name@revision --dry-run\n"},
    [SRV_CMD_LIST] = {"list", "list the models in the Hugging Face cache",
                      "  hearth list --json\n"},
    [SRV_CMD_RM] = {"rm", "remove a model from the Hugging Face cache", "  hearth rm org/name\n"},
    [SRV_CMD_KV] = {"kv", "list or erase the pages of prompts in a directory of --kv-disk",
                    "  hearth kv ls --kv-disk /var/cache/hearth/kv\n"
                    "  hearth kv erase --kv-disk /var/cache/hearth/kv --older 1d\n"
                    "  hearth kv erase --kv-disk /var/cache/hearth/kv --key-file revoked-keys\n"
                    "  hearth kv erase --kv-disk /var/cache/hearth/kv --all\n"},
    [SRV_CMD_EMBED] =
        {"embed", "texts in, one per line, vectors out",
         "  hearth embed --model org/name --text --npy vectors.npy <texts.txt\n"
         "  echo '{\"text\": \"Once upon a time\"}' | hearth embed --model org/name\n\n"
         "One JSON value per line in, one object per line out:\n"
         "  \"TEXT\" or {\"text\"} -> {\"embedding\"}\n"
         "  a line with a fault -> {\"error\"}; with --npy it ends the run\n"},
    [SRV_CMD_RERANK] =
        {"rerank", "queries and documents in, scores out",
         "  hearth rerank --model org/name --query 'how do bees fly' --text <documents.txt\n\n"
         "One JSON value per line in, one object per line out:\n"
         "  {\"query\", \"documents\": [], \"top_n\"} -> {\"results\": [{\"index\", "
         "\"relevance_score\"}]}, best first\n"
         "  \"TEXT\" or {\"text\"}, a document of --query -> {\"relevance_score\"}\n"
         "  a line with a fault -> {\"error\"}; with --npy it ends the run\n"},
    [SRV_CMD_CHAT] =
        {"chat", "talk to a model on the terminal (hearth run NAME fetches it before)",
         "  hearth chat                                        the demo model\n"
         "  hearth run org/name                                the same as chat --pull\n"
         "  hearth chat --model org/name --system 'Answer in one sentence.'\n"
         "  hearth chat --url http://127.0.0.1:8080\n"
         "  hearth chat -p 'Summarize this text:' <text.txt    one answer, without a terminal\n"},
};

/* The flag as it is typed: "-t, --threads N". */
static void print_flag(FILE *out, const struct srv_option *o)
{
    static const char *const placeholders[] = {
        [SRV_OPT_STRING] = " TEXT", [SRV_OPT_CHOICE] = " NAME", [SRV_OPT_INT] = " N",
        [SRV_OPT_INT64] = " N",     [SRV_OPT_BYTES] = " BYTES", [SRV_OPT_NUMBER] = " X",
        [SRV_OPT_BOOL] = "",        [SRV_OPT_LIST] = " LIST",
    };
    char text[160];
    int n = snprintf(text, sizeof(text), "  --%s%s", o->key, placeholders[o->type]);
    for (const char *p = o->aliases; p && *p && n < (int)sizeof(text) - 1; p += strspn(p, " ")) {
        int len = (int)strcspn(p, " ");
        n +=
            snprintf(text + n, sizeof(text) - (size_t)n, ", %s%.*s", len <= 2 ? "-" : "--", len, p);
        p += len;
    }
    fprintf(out, n < 33 ? "%-34s" : "%s\n%34s", text, "");
}

static void print_row(FILE *out, const struct srv_option *o)
{
    print_flag(out, o);
    fputs(o->help, out);
    if (o->choices) fprintf(out, " (%s)", o->choices);
    if (o->preset && o->type != SRV_OPT_BOOL) fprintf(out, " [%s]", o->preset);
    if (o->preset && strcmp(o->preset, "on") == 0) fprintf(out, " [on; --no-%s]", o->key);
    fputc('\n', out);
}

void srv_config_print_help(FILE *out, enum srv_command command)
{
    const char *name = srv_commands[command].name;
    fprintf(out, "hearth %s: %s\n\n%s\n", name, srv_commands[command].summary,
            srv_commands[command].examples);
    fprintf(out, "  hearth %s [options] [%s]\n", name,
            command == SRV_CMD_HEALTHCHECK ? "URL" : "MODEL");
    if (command == SRV_CMD_SERVE) {
        fputs("\nsubcommands (hearth NAME --help shows the options of each):\n", out);
        for (int i = 0; i < SRV_CMD_COUNT; i++)
            fprintf(out, "  %-12s %s\n", srv_commands[i].name, srv_commands[i].summary);
    }
    const char *group = "";
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        unsigned hidden = SRV_OPT_ENV_ONLY | SRV_OPT_HIDDEN;
        if (!(o->commands & (1u << command)) || (o->flags & hidden)) continue;
        if (strcmp(group, o->group) != 0) fprintf(out, "\n%s:\n", group = o->group);
        print_row(out, o);
    }
    fputs("\nEvery option is also read from the environment (HEARTH_CTX_SIZE for --ctx-size) and "
          "from the\n"
          "file named by --config (ctx-size = 4096). A flag wins over the environment, that over "
          "the file.\n"
          "An API key is read from HEARTH_API_KEY or from --api-key-file.\n",
          out);
}

/* True if the ini reader would take the text for something else, or lose its ends. */
static bool needs_quotes(const char *text)
{
    static const char trimmed[] = " \t\r";
    size_t len = strlen(text);
    return len &&
           (strchr("\"'", text[0]) || strchr(trimmed, text[0]) || strchr(trimmed, text[len - 1]));
}

/* A text as the ini reader reads it back. Returns -1 for one that no line of the file can hold. */
static int print_text(FILE *out, const char *text)
{
    if (!text || !*text) return 0;
    char quote = strchr(text, '"') ? '\'' : '"';
    bool quoted = needs_quotes(text);
    if (strchr(text, '\n') || (quoted && strchr(text, quote))) return -1;
    if (quoted)
        fprintf(out, " %c%s%c", quote, text, quote);
    else
        fprintf(out, " %s", text);
    return 0;
}

static int print_list(FILE *out, const struct srv_list *list)
{
    AUTO_FREE char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    for (int i = 0; f && i < list->n; i++)
        fprintf(f, "%s%s", i ? ", " : "", list->items[i]);
    return f && fclose(f) == 0 ? print_text(out, text) : -1;
}

static bool is_unset(const struct srv_option *o, const void *field)
{
    if (!(o->flags & SRV_OPT_UNSET)) return false;
    if (o->type == SRV_OPT_INT) return *(const int *)field == SRV_UNSET;
    if (o->type == SRV_OPT_INT64) return *(const int64_t *)field == SRV_UNSET;
    return *(const double *)field == SRV_UNSET;
}

/* Returns -1 for a text that a line of the file cannot hold. */
static int print_value(FILE *out, const struct srv_option *o, const void *field)
{
    if (is_unset(o, field)) return 0;
    switch (o->type) {
    case SRV_OPT_STRING:
    case SRV_OPT_CHOICE: return print_text(out, *(const char *const *)field);
    case SRV_OPT_INT: fprintf(out, " %d", *(const int *)field); break;
    case SRV_OPT_INT64:
    case SRV_OPT_BYTES: fprintf(out, " %lld", (long long)*(const int64_t *)field); break;
    case SRV_OPT_NUMBER: fprintf(out, " %.15g", *(const double *)field); break;
    case SRV_OPT_BOOL: fputs(*(const bool *)field ? " on" : " off", out); break;
    case SRV_OPT_LIST: return print_list(out, field);
    }
    return 0;
}

/* The line of an option. Returns -1 with err for a text that a line cannot hold. */
static int print_setting(FILE *out, const struct srv_option *o, const struct srv_config *c,
                         char *err, size_t errlen)
{
    bool is_named = c->entry && !c->is_further && o->offset == offsetof(struct srv_config, model);
    fprintf(out, "%s =", o->key);
    if (is_named) fprintf(out, " %s=%s", c->entry, c->model);
    if (!is_named && print_value(out, o, (const char *)c + o->offset))
        return fail_with(-1, err, errlen,
                         "%s: an ini file cannot hold a text of several lines, or one with blanks "
                         "or quotes at its ends and both kinds of quotes",
                         o->key);
    fputc('\n', out);
    return 0;
}

/* The sections of further models. */
static int print_more(FILE *out, const struct srv_config *c, char *err, size_t errlen)
{
    for (int k = 0; k < c->n_more; k++) {
        fprintf(out, "\n[model %s]\n", c->more[k].entry);
        for (int i = 0; i < srv_n_options; i++)
            if (srv_option_is_of_a_model(&srv_options[i]) &&
                print_setting(out, &srv_options[i], &c->more[k], err, errlen))
                return -1;
    }
    return 0;
}

int srv_config_print(FILE *out, const struct srv_config *c, char *err, size_t errlen)
{
    fputs("# Options of hearth, as `hearth --print-config` writes them. Give the file by --config "
          "FILE.\n"
          "# Each is also a flag (--ctx-size 4096) and an environment variable "
          "(HEARTH_CTX_SIZE=4096).\n"
          "# An empty value leaves the option unset.\n"
          "# A section [model NAME] with model = DIR serves one more model; it may hold keys of "
          "[model] and [compute]:\n"
          "# [model embed]\n"
          "# model = org/name\n"
          "# load = demand\n",
          out);
    const char *group = "";
    for (int i = 0; i < srv_n_options; i++) {
        const struct srv_option *o = &srv_options[i];
        unsigned skipped = SRV_OPT_FLAG_ONLY | SRV_OPT_ENV_ONLY | SRV_OPT_HIDDEN;
        if ((o->flags & skipped) || strcmp(o->key, "config") == 0) continue;
        if (strcmp(group, o->group) != 0) fprintf(out, "\n[%s]\n", group = o->group);
        fprintf(out, "# %s", o->help);
        if (o->choices) fprintf(out, " (%s)", o->choices);
        fputc('\n', out);
        if (print_setting(out, o, c, err, errlen)) return -1;
    }
    return print_more(out, c, err, errlen);
}
