/* The requests of tessera bench serve: a client of HTTP that reads streams of events as they come.
 */
#include <inttypes.h>
#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/serve/serve.h"
#include "cli/lib/memory.h"

#define MOST_LINE (1 << 20)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

bool bench_server_read(const char *url, bench_server *out)
{
    static const char scheme[] = "http://";
    *out = (bench_server){.url = url, .port = "80"};
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *at = url + sizeof scheme - 1, *end = at + strcspn(at, "/"),
               *colon = memchr(at, ':', (size_t)(end - at));
    const size_t host = (size_t)((colon != NULL ? colon : end) - at);
    const size_t port = colon != NULL ? (size_t)(end - colon - 1) : 0;
    size_t path = strlen(end);
    while (path > 0 && end[path - 1] == '/')
        path--;
    if (path >= 3 && memcmp(end + path - 3, "/v1", 3) == 0)
        path -= 3;
    if (host == 0 || host >= sizeof out->host || port >= sizeof out->port ||
        (colon != NULL && (port == 0 || strspn(colon + 1, "0123456789") != port)) ||
        path >= sizeof out->path)
        return false;
    memcpy(out->host, at, host);
    if (colon != NULL)
        snprintf(out->port, sizeof out->port, "%.*s", (int)port, colon + 1);
    memcpy(out->path, end, path);
    return true;
}

/* An answer that is being read. */
typedef struct answer {
    int fd, status;
    bool chunked;
    int64_t chunk; /* bytes that are left of this chunk; −1: its size comes next */
    char bytes[16384];
    size_t begin, end;
} answer;

/* Returns the next byte, or −1 at the end. */
static int raw_byte(answer *a)
{
    if (a->begin == a->end) {
        const ssize_t got = recv(a->fd, a->bytes, sizeof a->bytes, 0);
        if (got <= 0)
            return -1;
        a->begin = 0;
        a->end = (size_t)got;
    }
    return (unsigned char)a->bytes[a->begin++];
}

/* Reads a line without its end. Returns its length, or −1 at the end or if it is too long. */
static long read_line(answer *a, int (*next)(answer *), char *line, size_t most)
{
    size_t size = 0;
    int byte = -1;
    while (size + 1 < most && (byte = next(a)) >= 0 && byte != '\n')
        line[size++] = (char)byte;
    if ((byte < 0 && size == 0) || size + 1 >= most)
        return -1;
    if (size > 0 && line[size - 1] == '\r')
        size--;
    line[size] = '\0';
    return (long)size;
}

/* Returns the next byte of the body, or −1 at its end. */
static int body_byte(answer *a)
{
    char line[64];
    if (!a->chunked)
        return raw_byte(a);
    while (a->chunk <= 0) {
        if (a->chunk == 0 && read_line(a, raw_byte, line, sizeof line) < 0)
            return -1;
        if (read_line(a, raw_byte, line, sizeof line) < 0)
            return -1;
        a->chunk = strtoll(line, NULL, 16);
        if (a->chunk <= 0)
            return -1;
    }
    a->chunk--;
    return raw_byte(a);
}

static int dial(const bench_server *server)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    int fd = -1;
    if (getaddrinfo(server->host, server->port, &wanted, &all) != 0)
        return -1;
    for (const struct addrinfo *one = all; one != NULL && fd < 0; one = one->ai_next) {
        fd = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
        if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(all);
    return fd;
}

static bool send_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        const ssize_t sent = send(fd, text, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        text += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Sends a request and reads the headers of the answer. Returns false if that fails. */
static bool ask(const bench_server *server, const char *method, const char *path, const char *key,
                const char *body, answer *out)
{
    char head[2048], line[8192];
    *out = (answer){.fd = dial(server), .chunk = -1};
    const int size =
        snprintf(head, sizeof head,
                 "%s %s/v1%s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\nContent-Type: "
                 "application/json\r\nContent-Length: %zu\r\n%s%s%s\r\n",
                 method, server->path, path, server->host, server->port, strlen(body),
                 key != NULL ? "Authorization: Bearer " : "", key != NULL ? key : "",
                 key != NULL ? "\r\n" : "");
    if (out->fd < 0 || size < 0 || size >= (int)sizeof head ||
        !send_all(out->fd, head, (size_t)size) || !send_all(out->fd, body, strlen(body)) ||
        read_line(out, raw_byte, line, sizeof line) < 0 ||
        sscanf(line, "HTTP/1.%*d %d", &out->status) != 1)
        return false;
    for (long length; (length = read_line(out, raw_byte, line, sizeof line)) != 0;) {
        if (length < 0)
            return false;
        for (char *c = line; *c != '\0'; c++)
            *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
        out->chunked = out->chunked || strstr(line, "transfer-encoding: chunked") == line;
    }
    return true;
}

static json_t *read_document(answer *a)
{
    size_t size = 0, capacity = 65536;
    char *text = cli_alloc(capacity, 1);
    for (int byte; size < MOST_LINE && (byte = body_byte(a)) >= 0;) {
        if (size == capacity)
            text = cli_resize(text, capacity *= 2, 1);
        text[size++] = (char)byte;
    }
    json_t *document = json_loadb(text, size, 0, NULL);
    free(text);
    return document;
}

/* Describes an answer that is an error. */
static void note_error(answer *a, const char *what, char *problem, size_t size)
{
    json_t *document = a->status != 0 ? read_document(a) : NULL;
    const json_t *message = json_object_get(json_object_get(document, "error"), "message");
    if (a->fd < 0)
        snprintf(problem, size, "%s: cannot connect", what);
    else if (a->status == 0)
        snprintf(problem, size, "%s: no answer", what);
    else
        snprintf(problem, size, "%s: status %d%s%.150s", what, a->status,
                 json_is_string(message) ? ": " : "",
                 json_is_string(message) ? json_string_value(message) : "");
    json_decref(document);
}

bool bench_server_find_model(bench_server *server, const char *key, char *problem, size_t size)
{
    answer a;
    const bool asked = ask(server, "GET", "/models", key, "", &a) && a.status == 200;
    if (asked) {
        json_t *document = read_document(&a);
        const json_t *first = json_array_get(json_object_get(document, "data"), 0);
        const char *id = json_string_value(json_object_get(first, "id"));
        snprintf(server->model, sizeof server->model, "%s", id != NULL ? id : "");
        json_decref(document);
        if (id == NULL)
            snprintf(problem, size, "/v1/models: the answer names no model");
    } else {
        note_error(&a, "/v1/models", problem, size);
    }
    if (a.fd >= 0)
        close(a.fd);
    return asked && server->model[0] != '\0';
}

/* Takes one line of a stream. Returns true after the last one. */
static bool take_line(const char *line, double start, bench_reply *out)
{
    if (strncmp(line, "data:", 5) != 0)
        return false;
    line += 5 + strspn(line + 5, " ");
    if (strcmp(line, "[DONE]") == 0)
        return true;
    json_t *event = json_loads(line, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *text = json_object_get(choice, "text"), *usage = json_object_get(event, "usage"),
                 *error = json_object_get(event, "error");
    const json_t *message = json_object_get(error, "message");
    if (json_is_string(text) && json_string_length(text) > 0 && out->first_s <= 0)
        out->first_s = now() - start;
    if (json_is_object(usage)) {
        out->tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
        out->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
    }
    if (error != NULL)
        snprintf(out->problem, sizeof out->problem, "the stream ended: %.200s",
                 json_is_string(message) ? json_string_value(message) : "an error");
    json_decref(event);
    return out->problem[0] != '\0';
}

void bench_server_complete(const bench_server *server, const char *key, const char *prompt,
                           int64_t tokens, bench_reply *out)
{
    answer a;
    json_t *request = json_pack("{sssssIsisbs{sb}}", "model", server->model, "prompt", prompt,
                                "max_tokens", (json_int_t)tokens, "temperature", 0, "stream", 1,
                                "stream_options", "include_usage", 1);
    char *body = json_dumps(request, JSON_COMPACT), *line = cli_alloc(MOST_LINE, 1);
    const double start = now();
    *out = (bench_reply){0};
    if (ask(server, "POST", "/completions", key, body != NULL ? body : "", &a) && a.status == 200) {
        bool done = false;
        while (!done && read_line(&a, body_byte, line, MOST_LINE) >= 0)
            done = take_line(line, start, out);
        if (out->problem[0] == '\0' && (!done || out->tokens == 0))
            snprintf(out->problem, sizeof out->problem, "%s",
                     done ? "the stream has no usage" : "the stream was cut short");
    } else {
        note_error(&a, "/v1/completions", out->problem, sizeof out->problem);
    }
    out->end_s = now() - start;
    if (a.fd >= 0)
        close(a.fd);
    free(line);
    free(body);
    json_decref(request);
}
