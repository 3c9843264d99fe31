/* SPDX-License-Identifier: MIT */
/*
 * The options table. To add an option: a field in struct srv_config, a row here,
 * config.example.ini written again by `hearth --print-config`, and docs/ by `ninja docs`.
 */
#include "server/config/options.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "server/config/config.h"

#define BIT(command) (1u << SRV_CMD_##command)
#define SERVE BIT(SERVE)
#define PULL BIT(PULL)
#define RM BIT(RM)
#define CHAT BIT(CHAT)
#define RERANK BIT(RERANK)
#define KV BIT(KV)
#define ROWS (BIT(EMBED) | RERANK)
#define ENGINE (REQUESTS | BIT(GENERATE) | BIT(BENCH) | CHAT | ROWS)
#define MODEL (ENGINE | BIT(INSPECT))
#define TEMPLATE (REQUESTS | BIT(GENERATE) | BIT(INSPECT) | CHAT)
#define SAMPLE (REQUESTS | ANSWER)
#define ANSWER (BIT(GENERATE) | CHAT)
#define BENCH BIT(BENCH)
#define BATCH BIT(BATCH)
/* what answers requests, however they come */
#define REQUESTS (BIT(SERVE) | BATCH)
#define ALL ((1u << SRV_CMD_COUNT) - 1)

#define ROW(group_, key_, aliases_, type_, field, min_, max_, preset_, choices_, commands_,        \
            flags_, help_)                                                                         \
    {                                                                                              \
        .group = group_, .key = key_, .aliases = aliases_, .type = SRV_OPT_##type_,                \
        .offset = offsetof(struct srv_config, field), .min = min_, .max = max_, .preset = preset_, \
        .choices = choices_, .commands = commands_, .flags = flags_, .help = help_                 \
    }

#define STRING(group, key, aliases, field, preset, commands, help)                                 \
    ROW(group, key, aliases, STRING, field, 0, 0, preset, NULL, commands, 0, help)
#define CHOICE(group, key, aliases, field, preset, choices, commands, help)                        \
    ROW(group, key, aliases, CHOICE, field, 0, 0, preset, choices, commands, 0, help)
#define INT(group, key, aliases, field, min, max, preset, commands, help)                          \
    ROW(group, key, aliases, INT, field, min, max, preset, NULL, commands, 0, help)
#define INT64(group, key, aliases, field, min, max, preset, commands, help)                        \
    ROW(group, key, aliases, INT64, field, min, max, preset, NULL, commands, 0, help)
#define BYTES(group, key, aliases, field, min, max, preset, commands, help)                        \
    ROW(group, key, aliases, BYTES, field, min, max, preset, NULL, commands, 0, help)
#define NUMBER(group, key, aliases, field, min, max, preset, commands, help)                       \
    ROW(group, key, aliases, NUMBER, field, min, max, preset, NULL, commands, 0, help)
#define SWITCH(group, key, aliases, field, preset, commands, help)                                 \
    ROW(group, key, aliases, BOOL, field, 0, 0, preset, NULL, commands, 0, help)
#define UNSET(group, key, aliases, type, field, min, max, commands, help)                          \
    ROW(group, key, aliases, type, field, min, max, NULL, NULL, commands, SRV_OPT_UNSET, help)
#define LIST(group, key, aliases, field, commands, help)                                           \
    ROW(group, key, aliases, LIST, field, 0, 0, NULL, NULL, commands, 0, help)
#define ACTION(key, aliases, field, help)                                                          \
    ROW("program", key, aliases, BOOL, field, 0, 0, "off", NULL, ALL, SRV_OPT_FLAG_ONLY, help)

/* The most that a sampling parameter may be; the least is 0, because SRV_UNSET is less. */
#define MOST(name, type, least, most, ...) MOST_##name = most,
enum { ENG_SAMPLING_OPTIONS(MOST) };

/* The longest timeout, in milliseconds. */
#define DAY_MS 86400000.0
#define TERA 1099511627776.0

const struct srv_option srv_options[] = {
    ACTION("help", "h usage", help, "show the options of a subcommand"),
    ACTION("version", NULL, version, "show the version"),
    ACTION("check-config", NULL, check_config,
           "check options, keys, certificates and model, and exit"),
    ROW("program", "user", NULL, STRING, user, 0, 0, NULL, NULL, SERVE, SRV_OPT_FLAG_ONLY,
        "check-config: check as this user (default: if root checks, the service's, hearth)"),
    ACTION("print-config", NULL, print_config,
           "print the effective configuration as an ini file and exit"),
    ROW("program", "config", NULL, STRING, config_file, 0, 0, NULL, NULL, ALL, 0,
        "read options from this ini file"),

    STRING("model", "model", "m model-path", model, NULL, MODEL | PULL | RM | KV,
           "model directory, GGUF file, or org/name[:tag] in the Hugging Face cache (default: the "
           "demo "
           "model); serve: "
           "NAME=DIR or NAME=org/name, repeated, for several models"),
    STRING("model", "draft-model", "md model-draft speculative-model", draft_model, NULL,
           REQUESTS | ANSWER | BENCH | BIT(INSPECT),
           "directory, or org/name in the Hugging Face cache, of a smaller model with the same "
           "tokenizer that drafts; answers are the same"),
    SWITCH("model", "pull", NULL, pull, "off", MODEL,
           "fetch the model from the Hugging Face hub first, unless the cache has it"),
    STRING("model", "hf-repo", "hf hfr", hf_repo, NULL, MODEL,
           "org/name on the Hugging Face hub: model and pull in one"),
    STRING("model", "cache-dir", "download-dir", cache_dir, NULL, MODEL | PULL | BIT(LIST) | RM,
           "folder of the Hugging Face cache (default: HF_HUB_CACHE, or huggingface_hub's own)"),
    LIST("model", "alias", "a served-model-name model_name", alias, REQUESTS,
         "names the model answers to; the first is shown (default: the model's own name)"),
    STRING("model", "tokenizer", NULL, tokenizer, NULL, MODEL,
           "directory, or org/name, whose tokenizer.json, chat template and end tokens are used "
           "instead of the model's; for GGUF files that do not say how text is split"),
    STRING("model", "chat-template-file", "chat-template", chat_template_file, NULL, TEMPLATE,
           "chat template to use instead of the model's own"),
    STRING("model", "chat-template-kwargs", "default-chat-template-kwargs", chat_template_kwargs,
           NULL, REQUESTS,
           "JSON object of variables for the chat template; a request's own come first"),
    STRING(
        "model", "rerank-tokens", NULL, rerank_tokens, NULL, REQUESTS | RERANK,
        "yes,no: the two tokens that a model without a head judges documents by, for /v1/rerank"),
    STRING("model", "rerank-template", NULL, rerank_template, NULL, REQUESTS | RERANK,
           "file with {query}, {document}, {instruction}, or qwen3: the prompt of a pair"),
    STRING("model", "fim-marks", NULL, fim_marks, NULL, REQUESTS,
           "PREFIX,SUFFIX,MIDDLE[,REPO,FILE][,spm]: tokens around a hole (default: by its "
           "vocabulary)"),
    CHOICE("model", "tool-format", NULL, tool_format, "auto",
           "auto hermes list qwen-xml llama3 mistral mistral-args functionary pythonic gemma4 "
           "functiongemma none",
           REQUESTS | BIT(INSPECT),
           "how the model writes tool calls; auto: as its chat template does"),
    SWITCH("model", "generation-config", NULL, generation_config, "off", SAMPLE,
           "take sampling defaults from the model's generation_config.json"),
    SWITCH("model", "pin", NULL, pin, "off", REQUESTS,
           "the model is never unloaded for another one"),
    CHOICE("model", "load", NULL, load, "auto", "auto start demand", REQUESTS,
           "when a model is loaded; auto: at the start if all fit into memory, else the first one "
           "at the start and the others on demand"),
    INT("model", "share", NULL, share, 1, 100, "1", REQUESTS,
        "weight of the model when others want the cores too"),
    LIST("model", "lora", "lora-modules", lora, REQUESTS,
         "NAME=DIR or NAME=org/name: a LoRA adapter, used by requests for the model NAME; "
         "NAME=DIR@MODEL: of that model, not the first"),
    STRING(
        "model", "lora-dir", NULL, lora_dir, NULL, REQUESTS,
        "folder whose folders with an adapter_config.json are adapters too, of their names; read "
        "again on SIGHUP"),
    STRING("model", "models", "models-dir", models_dir, NULL, REQUESTS,
           "folder whose folders with a config.json and GGUF files are models too, loaded on "
           "demand; read again on "
           "SIGHUP"),
    STRING("model", "default-model", NULL, default_model, NULL, REQUESTS,
           "name of the model for requests without one (default: the first)"),
    INT("model", "models-max", NULL, models_max, 0, 64, "0", REQUESTS,
        "most models in memory at once; 0: as many as fit"),
    SWITCH("model", "models-autoload", NULL, models_autoload, "on", REQUESTS,
           "load a model when a request asks for it"),
    INT("model", "load-wait-ms", NULL, load_wait_ms, 0, DAY_MS, "60000", REQUESTS,
        "longest wait of a request for its model to be loaded; 0: unlimited"),

    INT("compute", "threads", "t", threads, 0, 1024, "0", ENGINE,
        "compute threads; 0: all usable cores (affinity, cgroup quota)"),
    CHOICE("compute", "numerics", NULL, numerics, "auto", "auto exact bf16 int8 file int4", ENGINE,
           "numeric path; exact: f32 activations, the reference; auto: bf16 for bf16 weights where "
           "auto kernels have a fast bf16 dot product, file for quantised ones, else exact"),
    CHOICE("compute", "gemm", NULL, gemm, "auto", "auto native blas", ENGINE,
           "matrix multiplication backend"),
    CHOICE("compute", "kernels", NULL, kernels, "auto",
           "auto c avx2 avx2vnni avx512 avx512vnni avx512bf16 avx512amx neon neondot neonbf16",
           ENGINE,
           "instruction set; auto: the best of this CPU, and not avx512bf16 where its bf16 dot "
           "product is slower than f32 arithmetic"),
    CHOICE("compute", "weight-coding", NULL, weight_coding, "auto", "auto on off", ENGINE,
           "keep bf16 weights in 12 bits, without loss; auto: if that is read faster here"),
    CHOICE("compute", "kv-dtype", "kv-cache-dtype cache-type-k", kv_dtype, "auto",
           "auto f32 bf16 int8", ENGINE,
           "number type of the KV cache; auto: f32 with exact, int8 with int8 and int4 but on CPUs "
           "with fast bf16 and for encoders, else bf16"),
    INT("compute", "idle-unload-s", "sleep-idle-seconds", idle_unload_s, 0, 30 * DAY_MS / 1000, "0",
        REQUESTS, "unload a model that no request has used for this long; 0: never"),
    INT("compute", "parallel", "np max-num-seqs", parallel, 1, 1024, "4", REQUESTS | ROWS,
        "sequences computed at once"),
    INT64(
        "compute", "ctx-size", "c max-model-len", ctx_size, 0, 16777216, "0", ENGINE & ~BENCH,
        "context length in tokens (8K: 8192); 0: the model's, or less if memory does not hold it"),
    INT("compute", "chunk", "ub ubatch-size", chunk, 0, 8192, "0", ENGINE,
        "prompt tokens per step; 0: automatic"),
    BYTES("compute", "memory", NULL, memory_bytes, 0, 1024 * TERA, "0", ENGINE,
          "memory budget for everything; 0: the cgroup limit or physical memory"),
    BYTES("compute", "kv-memory", NULL, kv_memory_bytes, 0, 1024 * TERA, "0", ENGINE,
          "memory budget of the KV cache; 0: parallel x context, capped by memory"),
    STRING(
        "compute", "kv-disk", NULL, kv_disk, NULL, REQUESTS | KV,
        "directory, of this user alone, for KV pages: prompts computed before a restart are read "
        "from it"),
    BYTES("compute", "kv-disk-bytes", NULL, kv_disk_bytes, 0, 1024 * TERA, "10G", REQUESTS,
          "most bytes in kv-disk; the least recently used go first"),
    INT("compute", "kv-disk-age", NULL, kv_disk_age, 1, 3650, "7", REQUESTS,
        "days after which unused pages leave kv-disk"),
    BYTES("compute", "answer-memory", NULL, answer_memory_bytes, 0, 1024 * TERA, "0", REQUESTS,
          "memory budget of unsent answers; 0: a sixteenth of the memory"),
    INT64("compute", "grammar-cache-mb", NULL, grammar_cache_mb, 0, 65536, "32", REQUESTS,
          "MiB for compiled grammars that are kept for later requests; 0: none is kept"),
    BYTES("compute", "lora-memory", NULL, lora_memory_bytes, 0, TERA, "256M", REQUESTS,
          "memory budget of adapters that are open, if there are any; the least recently used are "
          "closed"),
    INT("compute", "lora-max-rank", "max-lora-rank", lora_max_rank, 1, 256, "64", REQUESTS,
        "largest rank of an adapter"),
    CHOICE("compute", "schema-objects", NULL, schema_objects, "closed", "closed open",
           REQUESTS | ANSWER,
           "keys of objects whose schema has properties and says nothing about others; closed: "
           "those named; open: any"),
    CHOICE("compute", "json-whitespace", NULL, json_whitespace, "style", "style any",
           REQUESTS | ANSWER,
           "white space in JSON under a schema or json_object and in arguments of calls; style: "
           "one style in an answer, as programs print it; any: up to two newlines and 20 blanks "
           "at every place"),
    SWITCH("compute", "prefix-cache", "enable-prefix-caching", prefix_cache, "on", REQUESTS,
           "share the KV pages of equal prompt prefixes among the requests of a key"),
    CHOICE(
        "compute", "speculate", NULL, speculate, "auto", "auto off always lookup",
        REQUESTS | ANSWER,
        "compute tokens in advance that are copied from the text or the request's prediction or "
        "drafted by draft-model or a 4-bit twin of the weights; auto: while it pays, with a twin "
        "if memory has room; lookup: without these two; answers are the same"),
    SWITCH("compute", "memory-lock", "mlock", memory_lock, "off", REQUESTS,
           "lock all memory in RAM (needs CAP_IPC_LOCK or a memlock limit)"),
    INT("compute", "max-choices", NULL, max_choices, 1, 16, "16", REQUESTS,
        "largest n and best_of of a request"),

    STRING("listen", "host", NULL, host, "127.0.0.1", SERVE, "address to listen on"),
    INT("listen", "port", NULL, port, 0, 65535, "8080", SERVE,
        "port; 0: a free port, shown in the ready line"),
    STRING("listen", "unix-socket", "uds", unix_socket, NULL, SERVE,
           "listen on this Unix socket instead of TCP"),
    STRING("listen", "metrics-host", NULL, metrics_host, "127.0.0.1", SERVE,
           "address of the metrics listener"),
    INT("listen", "metrics-port", NULL, metrics_port, -1, 65535, "-1", SERVE,
        "port of a second listener for health and metrics without a key; 0: a free port, -1: none"),
    STRING("listen", "tls-cert-file", "ssl-cert-file ssl-certfile", tls_cert_file, NULL, SERVE,
           "PEM certificate chain; with tls-key-file: serve HTTPS"),
    STRING("listen", "tls-key-file", "ssl-key-file ssl-keyfile", tls_key_file, NULL, SERVE,
           "PEM private key"),
    SWITCH("listen", "page", "webui", page, "on", SERVE, "serve the chat page at /"),
    INT("listen", "max-connections", NULL, max_connections, 0, 65536, "0", SERVE,
        "most open connections; further ones get 503; 0: 1024, fewer in little memory"),

    ROW("access", "api-key", NULL, STRING, api_key, 0, 0, NULL, NULL, SERVE, SRV_OPT_ENV_ONLY,
        "an API key (environment only)"),
    STRING("access", "api-key-file", NULL, api_key_file, NULL, SERVE,
           "file of API keys and their words, one per line, # comments; read again on SIGHUP"),
    ROW("access", "operator-key", NULL, STRING, operator_key, 0, 0, NULL, NULL, SERVE,
        SRV_OPT_ENV_ONLY, "the key that may swap the model (environment only)"),
    STRING("access", "operator-key-file", NULL, operator_key_file, NULL, SERVE,
           "file of operator keys, as api-key-file; only they may swap the model"),
    SWITCH("access", "allow-public-without-key", NULL, allow_public_without_key, "off", SERVE,
           "listen on a public address even if no key is set"),
    LIST("access", "allowed-hosts", NULL, allowed_hosts, SERVE,
         "accepted Host names; *: any (default: loopback names if on loopback without a key)"),
    LIST("access", "cors-origins", NULL, cors_origins, SERVE,
         "accepted browser origins; SCHEME://*: any host; SCHEME://HOST:*: any port; *: any "
         "(default: "
         "none)"),

    INT("requests", "max-queue", NULL, max_queue, 0, 100000, "0", REQUESTS,
        "most requests waiting in the queue; 0: 4 x parallel"),
    INT64("requests", "max-queue-tokens", NULL, max_queue_tokens, 0, 1e12, "0", REQUESTS,
          "most prompt tokens waiting in the queue; 0: 8 x context, of an encoder 8 x chunk"),
    INT("requests", "queue-timeout-ms", NULL, queue_timeout_ms, 0, DAY_MS, "30000", REQUESTS,
        "longest wait in the queue; 0: unlimited"),
    CHOICE("requests", "priority-policy", NULL, priority_policy, "key", "key global", REQUESTS,
           "scope of a request's priority: requests of its own key, or all"),
    CHOICE("requests", "reasoning-format", NULL, reasoning_format, "auto", "auto none", REQUESTS,
           "auto: reasoning is told apart from content; none: it stays in it"),
    CHOICE("requests", "reasoning-field", NULL, reasoning_field, "reasoning_content",
           "reasoning_content reasoning both", REQUESTS,
           "name of the field of chat completions that holds the reasoning"),
    SWITCH("requests", "close-answers", NULL, close_answers, "on", REQUESTS | ANSWER,
           "write the shortest end of an answer under a schema or json_object, or of a call of the "
           "function that tool_choice names, before its tokens run out"),
    INT("requests", "schema-max-tokens", NULL, schema_max_tokens, 0, 16777216, "4096",
        REQUESTS | ANSWER,
        "with close-answers: max_tokens of requests with a schema or json_object that set none; "
        "0: the rest of the context"),
    INT("requests", "request-timeout-ms", NULL, request_timeout_ms, 0, DAY_MS, "0", REQUESTS,
        "longest time for a whole request; 0: unlimited"),
    BYTES("requests", "max-body-bytes", NULL, max_body_bytes, 0, 1e9, "0", REQUESTS,
          "largest request body; 0: 4M, less in little memory"),
    SWITCH("requests", "strict-params", NULL, strict_params, "off", REQUESTS,
           "refuse unknown fields"),
    SWITCH("requests", "strict-model", NULL, strict_model, "off", REQUESTS,
           "refuse the placeholder names default, tgi and dummy too"),
    SWITCH("requests", "accept-any-model", NULL, accept_any_model, "off", REQUESTS,
           "accept any model name in a request"),
    SWITCH("requests", "keep-metadata-lines", NULL, keep_metadata_lines, "off", REQUESTS,
           "leave x-anthropic-... lines at the beginning of system prompts in them"),
    INT("requests", "text-workers", NULL, text_workers, 0, 64, "0", REQUESTS,
        "threads for JSON, templates and tokenizing; 0: automatic"),

    INT("wire", "header-timeout-ms", NULL, header_timeout_ms, 100, DAY_MS, "20000", SERVE,
        "longest time to receive the head of a request"),
    INT("wire", "body-timeout-ms", NULL, body_timeout_ms, 100, DAY_MS, "60000", SERVE,
        "longest time to receive the body of a request"),
    INT("wire", "idle-timeout-ms", NULL, idle_timeout_ms, 100, DAY_MS, "120000", SERVE,
        "close a connection that is idle for this long"),
    INT("wire", "send-timeout-ms", NULL, send_timeout_ms, 100, DAY_MS, "55000", SERVE,
        "close a connection that accepts less than 16 KiB of its answer within this time"),
    INT("wire", "heartbeat-ms", NULL, heartbeat_ms, 0, DAY_MS, "15000", SERVE,
        "send a comment on a stream that is silent for this long; 0: never"),

    INT("operation", "drain-timeout-ms", NULL, drain_timeout_ms, 0, DAY_MS, "30000", SERVE,
        "after SIGTERM: time for running requests to finish"),
    INT("operation", "drain-delay-ms", NULL, drain_delay_ms, 0, DAY_MS, "0", SERVE,
        "after SIGTERM: time to keep accepting requests while not ready"),
    STRING("operation", "batch-dir", NULL, batch_dir, NULL, REQUESTS,
           "directory, of this user alone, for /v1/files and /v1/batches: requests without hurry, "
           "which run where others leave room, and go on after a restart"),
    BYTES("operation", "batch-bytes", NULL, batch_bytes, 0, 1024 * TERA, "10G", SERVE,
          "most bytes of files in batch-dir; a fifth of it for a key"),
    CHOICE(
        "operation", "swap", NULL, swap, "auto", "auto on off", SERVE,
        "POST /models/load; auto: if an operator key is set; on: also from loopback without keys"),
    BYTES("operation", "swap-memory", NULL, swap_memory_bytes, 0, 1024 * TERA, "0", SERVE,
          "memory left free by the first model, for the one that replaces it"),
    INT("operation", "swap-drain-ms", NULL, swap_drain_ms, 0, DAY_MS, "0", SERVE,
        "after a swap: time for requests of the old model to finish; 0: unlimited"),
    INT("operation", "watchdog-ms", NULL, watchdog_ms, 0, DAY_MS, "60000", SERVE,
        "fail liveness if work waits and no step finishes for this long; 0: never"),
    CHOICE("operation", "log-format", NULL, log_format, "auto", "auto text json", SERVE,
           "auto: text on a terminal, else json"),
    CHOICE("operation", "log-level", NULL, log_level, "info", "error warning info debug", SERVE,
           "least severe level that is logged"),
    SWITCH("operation", "log-prompts", NULL, log_prompts, "off", SERVE,
           "write request bodies to the log"),
    SWITCH("operation", "vllm-metrics", NULL, vllm_metrics, "on", SERVE,
           "serve the metrics under vLLM's names too"),
    ROW("operation", "debug-hooks", NULL, BOOL, debug_hooks, 0, 0, "off", NULL, SERVE,
        SRV_OPT_HIDDEN, "SIGUSR1 pauses and resumes the engine"),
    ROW("operation", "debug-hold-load", NULL, BOOL, debug_hold_load, 0, 0, "off", NULL, SERVE,
        SRV_OPT_HIDDEN, "loading never ends"),

    UNSET(
        "sampling", "temperature", "temp", NUMBER, temperature, 0, MOST_temperature, SAMPLE,
        "sampling temperature; 0: always the likeliest token (default: serve and chat 1, generate "
        "0)"),
    UNSET("sampling", "top-p", NULL, NUMBER, top_p, 0, MOST_top_p, SAMPLE,
          "probability mass sampled from; 1: all (default: 1)"),
    UNSET("sampling", "top-k", NULL, INT, top_k, 0, MOST_top_k, ANSWER,
          "likeliest tokens sampled from; 0: all (default: 0)"),
    UNSET("sampling", "min-p", NULL, NUMBER, min_p, 0, MOST_min_p, ANSWER,
          "smallest probability, as a share of the likeliest token's; 0: off (default: 0)"),
    UNSET("sampling", "seed", "s", INT64, seed, 0, 9e15, SAMPLE,
          "random seed (default: serve and chat a new one per answer, generate 0)"),
    UNSET("sampling", "max-tokens", "n n-predict predict", INT, max_tokens, 0, 16777216, SAMPLE,
          "tokens to generate (default: serve as the API says, chat up to the context, generate "
          "128)"),

    STRING(
        "generate", "prompt", "p", prompt, NULL, ANSWER,
        "text to continue, or with --chat to answer; -: read from stdin; chat: the first message"),
    STRING("generate", "json-schema", NULL, json_schema, NULL, ANSWER,
           "file with a JSON schema that the answer must fit"),
    STRING("generate", "regex", NULL, regex, NULL, ANSWER,
           "regular expression that the answer must match"),
    STRING("generate", "grammar", "grammar-file", grammar, NULL, ANSWER,
           "file with a GBNF grammar that the answer must follow"),
    SWITCH("generate", "chat", NULL, chat, "off", BIT(GENERATE),
           "apply the chat template to the prompt"),

    SWITCH("embed", "text", NULL, text, "off", ROWS, "each line is a text, not JSON"),
    STRING("embed", "npy", NULL, npy, NULL, ROWS,
           "write the rows to this file, a NumPy array of float32, instead of JSON lines"),
    SWITCH("embed", "truncate", NULL, truncate, "off", ROWS, "cut texts that are too long"),
    STRING("embed", "prompt-name", NULL, prompt_name, NULL, BIT(EMBED),
           "prompt of the model's files in front of each text: query, document, ..."),
    INT("embed", "dimensions", NULL, dimensions, 0, 1048576, "0", BIT(EMBED),
        "keep so many numbers of each vector; 0: all"),
    STRING("embed", "query", NULL, query, NULL, RERANK,
           "the search that documents without a query of their own are scored for"),

    STRING("chat", "url", NULL, chat_url, NULL, CHAT | BATCH,
           "talk to this server: http://HOST:PORT, https://HOST or unix:PATH"),
    STRING("chat", "system", "sys", system, NULL, CHAT, "system text of the conversation"),
    SWITCH("chat", "history", NULL, history, "on", CHAT, "keep messages for later line editing"),
    SWITCH("chat", "timings", NULL, timings, "off", CHAT, "show tokens and times of each answer"),

    ROW("pull", "dry-run", NULL, BOOL, dry_run, 0, 0, "off", NULL, PULL, SRV_OPT_FLAG_ONLY,
        "list the files without fetching them; write nothing"),
    ROW("pull", "force", NULL, BOOL, force, 0, 0, "off", NULL, PULL, SRV_OPT_FLAG_ONLY,
        "fetch files again that the cache has"),
    ROW("pull", "yes", "y", BOOL, yes, 0, 0, "off", NULL, RM, SRV_OPT_FLAG_ONLY,
        "remove without asking"),
    ROW("pull", "debug-retry-ms", NULL, INT, debug_retry_ms, 1, 60000, "500", NULL, MODEL | PULL,
        SRV_OPT_HIDDEN, "wait before the second try; each further one waits twice as long"),

    ROW("kv", "all", NULL, BOOL, all, 0, 0, "off", NULL, KV, SRV_OPT_FLAG_ONLY,
        "erase the pages of all models and keys"),
    ROW("kv", "older", NULL, STRING, older, 0, 0, NULL, NULL, KV, SRV_OPT_FLAG_ONLY,
        "erase pages that were not used for this time: 12h, 7d"),
    ROW("kv", "key-file", NULL, STRING, key_file, 0, 0, NULL, NULL, KV, SRV_OPT_FLAG_ONLY,
        "erase what the API keys in this file computed, one per line"),

    STRING("batch", "input", "i input-file", batch_in, NULL, BATCH, "file of requests; -: stdin"),
    STRING("batch", "output", "o output-file", output, NULL, BATCH,
           "file of the answers; -: stdout"),
    STRING("batch", "errors", NULL, errors, NULL, BATCH,
           "file of the answers of lines that failed, instead of that"),
    CHOICE(
        "batch", "order", NULL, order, "input", "input prefix", BATCH,
        "order of computing; prefix: lines of like beginnings after each other; the answers have "
        "that of the requests"),
    SWITCH("batch", "resume", NULL, resume, "off", BATCH,
           "go on after the answers that the file of the answers has"),
    ROW("batch", "erase-key", NULL, STRING, erase_key, 0, 0, NULL, NULL, BATCH, SRV_OPT_FLAG_ONLY,
        "only remove the files and batches of the API keys in this file from batch-dir"),

    SWITCH("bench", "json", NULL, json, "off", BENCH | BIT(INSPECT) | BIT(LIST) | CHAT,
           "print results as JSON; of chat: one answer"),
    LIST("bench", "prefill", NULL, prefill, BENCH,
         "prompt lengths of the prefill measurement (default: 512)"),
    INT("bench", "decode", NULL, decode, 0, 1e6, "128", BENCH,
        "tokens of the decode measurement; 0: none"),
    LIST("bench", "batch", NULL, batch, BENCH, "numbers of sequences decoded at once (default: 1)"),
    LIST("bench", "context", NULL, context, BENCH,
         "tokens already in the cache when decoding (default: 0)"),
    INT("bench", "reps", NULL, reps, 1, 1000, "5", BENCH,
        "repetitions; median, minimum and maximum are shown"),

    ROW("healthcheck", "healthcheck", NULL, STRING, url, 0, 0, NULL, NULL, ALL, SRV_OPT_FLAG_ONLY,
        "exit 0 if this URL answers 200 (default: /readyz of the configured address)"),
};

const int srv_n_options = sizeof(srv_options) / sizeof(srv_options[0]);

bool srv_option_is_of_a_model(const struct srv_option *o)
{
    static const char *const shared[] = {
        "pull",   "hf-repo",       "cache-dir",  "threads",      "memory",         "memory-lock",
        "models", "default-model", "models-max", "load-wait-ms", "models-autoload"};
    bool found = !strcmp(o->group, "model") || !strcmp(o->group, "compute");
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        found = found && strcmp(o->key, shared[i]) != 0;
    return found;
}

void srv_option_env_name(const struct srv_option *o, char *buf, size_t size)
{
    snprintf(buf, size, "HEARTH_%s", o->key);
    for (char *p = buf; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}
