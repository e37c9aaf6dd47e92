/* Servers of `tessera serve` that tests start, and their clients. Each function fails the test if
 * something else than what it describes happens. */
#ifndef TESTS_CLI_SERVER_H
#define TESTS_CLI_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

typedef struct server {
    pid_t pid;
    int port;
    FILE *out, *err;
} server;

#define MODEL TEST_DATA "/model/stories260K-f16.gguf"
/* The arguments of a server; more may follow. */
#define SERVE "serve " MODEL " --port 0 --name stories --format vicuna "

/* A member of requests: a prompt whose most likely continuation is wanted. */
#define PROMPT "\"prompt\": \"Once upon a time\", \"temperature\": 0"

/* Starts a server with these arguments, which spaces separate. */
server server_begin(const char *arguments);
/* Waits until it is ready. */
void server_await_ready(server *s);
/* Both of them. */
server server_start(const char *arguments);
/* Ends a server by a signal. It must exit with 0 and have printed nothing on standard error. */
void server_stop(server *s);

/* Opens a connection. */
int server_dial(const server *s);
void server_put(int fd, const char *text, size_t size);
/* Sends a request on a new connection, which the server closes after its answer. */
int server_ask(const server *s, const char *method, const char *path, const char *headers,
               const char *body);

typedef struct reply {
    int status;
    char *text; /* the headers and the body; for free() */
    char *body; /* points into `text` */
} reply;
/* Reads an answer up to the end of the connection, and closes it. */
reply server_hear(int fd);
/* server_ask without headers, and server_hear. */
reply server_call(const server *s, const char *method, const char *path, const char *body);
/* Sends a body that is formatted from its parts. The answer must have this status. Returns its
 * document. */
json_t *server_post(const server *s, int status, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns the first choice of a reply. */
const json_t *server_choice(const json_t *reply_document);
/* Returns the texts of all events of a stream, put together; for free(). The stream must end as it
 * should, for this reason. */
char *server_streamed(const char *body, bool chat, const char *finish);

/* Returns the value of a metric, whose name is without "tessera_". */
double server_metric(const server *s, const char *name);
/* Waits until a metric has at least this value. */
void server_await(const server *s, const char *name, double value);

/* Writes an adapter for MODEL into a folder: one of the queries of all layers, which changes texts.
 */
void server_write_adapter(const char *folder);

#endif
