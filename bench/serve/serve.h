/* tessera bench serve: measures servers of OpenAI's HTTP API, side by side. */
#ifndef TSR_BENCH_SERVE_SERVE_H
#define TSR_BENCH_SERVE_SERVE_H

#include <stdint.h>

#include "cli/lib/command.h"

extern const cli_command bench_serve_command;

typedef struct bench_server {
    const char *url;
    char host[256], port[8], path[256]; /* of the URL; `path` comes before /v1 */
    char model[256];                    /* the first one that it lists */
} bench_server;

/* What came of a completion that was streamed. */
typedef struct bench_reply {
    double first_s, end_s; /* from the request to the first text, and to the end */
    int64_t tokens, prompt_tokens;
    char problem[256]; /* "": none */
} bench_reply;

/* Reads a URL such as http://127.0.0.1:8080. Returns false if it is something else. */
bool bench_server_read(const char *url, bench_server *out);
/* Finds the server's model. Returns false and writes why not to `problem`. */
bool bench_server_find_model(bench_server *server, const char *key, char *problem, size_t size);
/* Streams a completion of the prompt, of `tokens` tokens. `key` may be NULL. */
void bench_server_complete(const bench_server *server, const char *key, const char *prompt,
                           int64_t tokens, bench_reply *out);

#endif
