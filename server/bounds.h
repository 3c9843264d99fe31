/* SPDX-License-Identifier: MIT */
/*
 * The maxima of HTTP, keys, streams and the log, each with its reason. Bounds that follow from one
 * file's own design are in that file; those that an operator may want to change are options.
 */
#pragma once

enum {
    /* API keys: a file of a few hundred lines; each request walks all of them. */
    SRV_KEYS_MAX = 4096,
    SRV_KEY_MAX_BYTES = 512,
    SRV_KEY_FILE_MAX_BYTES = 4 << 20, /* room for the largest number of keys, with comments */
    SRV_KEY_MODELS_MAX_BYTES = 1024,  /* names of models after a key, copied for each request */

    /* One connection's pool in libmicrohttpd: bounds the head (431, 414 above it) and is the chunk
       buffer. */
    SRV_CONNECTION_POOL_BYTES = 64 << 10,
    /* Kernel send buffer: a client that stops reading is noticed after this many bytes. */
    SRV_SEND_BUFFER_BYTES = 64 << 10,
    /* Connections beyond max-connections that are accepted to be answered with 503. */
    SRV_CONNECTION_MARGIN = 64,
    SRV_ADMIN_CONNECTIONS = 64,
    /* Time for a refused connection to send its head. */
    SRV_REFUSED_HEADER_MS = 2000,
    /* Grace for a client that has closed its sending side but may read an answer that is ready. */
    SRV_HALF_CLOSE_GRACE_MS = 500,
    /* While draining: time for the rest of a request that has begun to arrive. The watcher ticks at
       least once a second, so the wait ends within two seconds. */
    SRV_DRAIN_UNFINISHED_MS = 1000,
    /*
     * A client must take this many bytes of its answer per send-timeout-ms: 300 bytes per second by
     * default. A client that reads single bytes cannot keep an answer in memory.
     */
    SRV_SEND_MIN_BYTES = 16 << 10,
    SRV_HEADERS_MAX = 100, /* header lines of one request */
    SRV_URI_MAX_BYTES = 8 << 10,
    SRV_REPLY_HEADERS_MAX = 24, /* headers of one answer */
    SRV_REQUEST_ID_MAX = 128,

    /* Bytes a stream holds for its client. From the first bound on the text worker puts no more
     * events together until the second is reached again; a writer that continues all the same is
     * cut at the third. One event may be larger than all: log-probabilities of many tokens come in
     * one. */
    SRV_STREAM_ROOM_BYTES = 64 << 10,
    SRV_STREAM_LOW_BYTES = 16 << 10,
    SRV_STREAM_MAX_BYTES = 256 << 10,
    SRV_STREAM_EVENT_MAX_BYTES = 16 << 20,

    /* An answer up to this size is not charged to the budget of all answers. */
    SRV_SMALL_ANSWER_BYTES = 256 << 10,

    /* Bodies held at once, as a multiple of the largest body: counted as they arrive. */
    SRV_BODIES_FACTOR = 16,
    SRV_SMALL_BODIES_FACTOR = SRV_BODIES_FACTOR / 8, /* more, for small ones alone */
    /* Read and discarded of a body that is too large, so that its sender sees the 413. */
    SRV_DISCARD_MAX_BYTES = 512 << 10,
    /* A file that is uploaded, with the rest of its body; and the pieces that go to the disk, each
     * of which must come within this time. */
    SRV_UPLOAD_FILE_BYTES = 200 << 20,
    SRV_UPLOAD_MAX_BYTES = SRV_UPLOAD_FILE_BYTES + (64 << 10),
    SRV_UPLOAD_PIECE_BYTES = 64 << 10,
    SRV_UPLOAD_PIECE_MS = 10000,
    /* Memory of one request's own data: logs of tokens sized at admission are the largest part. */
    SRV_ARENA_MAX_BYTES = 128 << 20,
    SRV_ARENA_BLOCK_BYTES = 16 << 10,

    /*
     * Reservations of refused clients; all are visited for each generating request. One key may
     * hold a quarter.
     */
    SRV_RESERVATIONS_MAX = 1024,
    SRV_RESERVATIONS_OF_KEY_MAX = 256,

    /* Stop strings of a request, and bytes of each. */
    SRV_MAX_STOPS = 64,
    SRV_MAX_STOP_BYTES = 1024,

    /* A body up to this size is parsed, rendered and tokenized in a few milliseconds. */
    SRV_SMALL_BODY_BYTES = 64 << 10,
    /* Texts of a request that are tokenized in a row, before other keys' requests have their turn;
     * and the bytes of all of them together with what each is joined with. */
    SRV_TEXTS_TURN_US = 20000,
    SRV_JOINED_TEXTS_BYTES = 32 << 20,
    SRV_WORKER_STACK_BYTES =
        8 << 20, /* enough for every parser, which recurse to a limited depth */
    SRV_LOG_LINE_MAX_BYTES = 4 << 10,
    SRV_LOG_QUEUE_BYTES = 256 << 10, /* lines that wait for stderr: about 500 of the access log */
    SRV_LOG_FIELD_MAX_BYTES = 256,   /* one field from a client */
    SRV_METRICS_MAX_BYTES = 256 << 10,
};

/* Large bodies that are worked on at once by so many text workers. */
static inline int srv_large_texts(int n_workers)
{
    return n_workers > 3 ? n_workers - 2 : 1;
}
