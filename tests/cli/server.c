#include "cli/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"

server server_begin(const char *arguments)
{
    char *copy = strdup(arguments), *argv[64] = {(char[]){TEST_TOOL}};
    int out[2], count = 1;
    ck_assert_ptr_nonnull(copy);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[count++] = word;
    server s = {.err = tmpfile()};
    ck_assert(s.err != NULL && pipe(out) == 0);
    s.pid = fork();
    ck_assert_int_ge(s.pid, 0);
    if (s.pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        dup2(fileno(s.err), STDERR_FILENO);
        close(out[0]);
        close(out[1]);
        execv(TEST_TOOL, argv);
        _exit(99);
    }
    free(copy);
    close(out[1]);
    s.out = fdopen(out[0], "r");
    ck_assert_ptr_nonnull(s.out);
    return s;
}

void server_await_ready(server *s)
{
    char line[512] = "", said[8192] = "";
    if (fgets(line, sizeof line, s->out) == NULL) {
        rewind(s->err);
        said[fread(said, 1, sizeof said - 1, s->err)] = '\0';
        ck_abort_msg("the server has ended: %s", said);
    }
    const char *port = strstr(line, "http://127.0.0.1:");
    ck_assert_msg(port != NULL, "%s", line);
    s->port = atoi(port + strlen("http://127.0.0.1:"));
}

server server_start(const char *arguments)
{
    server s = server_begin(arguments);
    server_await_ready(&s);
    return s;
}

void server_stop(server *s)
{
    int status = 0;
    char text[4096];
    ck_assert_int_eq(kill(s->pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
    rewind(s->err);
    const size_t size = fread(text, 1, sizeof text - 1, s->err);
    text[size] = '\0';
    ck_assert_str_eq(text, "");
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    fclose(s->out);
    fclose(s->err);
}

/* Clients -------------------------------------------------------------------------------------- */

int server_dial(const server *s)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)s->port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

void server_put(int fd, const char *text, size_t size)
{
    while (size > 0) {
        const ssize_t sent = send(fd, text, size, MSG_NOSIGNAL);
        ck_assert_int_gt(sent, 0);
        text += sent;
        size -= (size_t)sent;
    }
}

int server_ask(const server *s, const char *method, const char *path, const char *headers,
               const char *body)
{
    const int fd = server_dial(s);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    fprintf(out, "%s %s HTTP/1.0\r\nContent-Length: %zu\r\n%s\r\n%s", method, path, strlen(body),
            headers, body);
    fclose(out);
    server_put(fd, text, size);
    free(text);
    return fd;
}

reply server_hear(int fd)
{
    reply r = {0};
    size_t size = 0;
    char bytes[4096];
    FILE *out = open_memstream(&r.text, &size);
    ck_assert_ptr_nonnull(out);
    for (ssize_t got; (got = recv(fd, bytes, sizeof bytes, 0)) != 0;) {
        ck_assert_int_gt(got, 0);
        fwrite(bytes, 1, (size_t)got, out);
    }
    fclose(out);
    close(fd);
    ck_assert_int_eq(sscanf(r.text, "HTTP/1.%*d %d", &r.status), 1);
    r.body = strstr(r.text, "\r\n\r\n");
    ck_assert_ptr_nonnull(r.body);
    r.body += 4;
    return r;
}

reply server_call(const server *s, const char *method, const char *path, const char *body)
{
    return server_hear(server_ask(s, method, path, "", body));
}

json_t *server_post(const server *s, int status, const char *path, const char *format, ...)
{
    char body[4096];
    json_error_t error;
    va_list arguments;
    va_start(arguments, format);
    ck_assert_int_lt(vsnprintf(body, sizeof body, format, arguments), (int)sizeof body);
    va_end(arguments);
    reply r = server_call(s, "POST", path, body);
    ck_assert_msg(r.status == status, "%s: %s", body, r.text);
    json_t *json = json_loads(r.body, 0, &error);
    ck_assert_msg(json != NULL, "%s: %s", error.text, r.body);
    free(r.text);
    return json;
}

double server_metric(const server *s, const char *name)
{
    char wanted[128];
    reply r = server_call(s, "GET", "/metrics", "");
    ck_assert_int_eq(r.status, 200);
    snprintf(wanted, sizeof wanted, "\ntessera_%s ", name);
    const char *line = strstr(r.body, wanted);
    ck_assert_msg(line != NULL, "%s", r.body);
    const double value = atof(line + strlen(wanted));
    free(r.text);
    return value;
}

void server_await(const server *s, const char *name, double value)
{
    while (server_metric(s, name) < value) /* the test's time is limited */
        nanosleep(&(struct timespec){0, 20000000}, NULL);
}

const json_t *server_choice(const json_t *reply_document)
{
    const json_t *choice = json_array_get(json_object_get(reply_document, "choices"), 0);
    ck_assert_ptr_nonnull(choice);
    return choice;
}

char *server_streamed(const char *body, bool chat, const char *finish)
{
    char *all = calloc(1, strlen(body) + 1), *copy = strdup(body), *rest = copy;
    bool done = false, finished = false;
    ck_assert(all != NULL && copy != NULL);
    for (char *line; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
        ck_assert_int_eq(strncmp(line, "data: ", 6), 0);
        ck_assert(!done);
        if (strcmp(line + 6, "[DONE]") == 0) {
            done = true;
            continue;
        }
        json_t *event = json_loads(line + 6, 0, NULL);
        ck_assert_msg(event != NULL, "%s", line);
        const json_t *choice = server_choice(event), *delta = json_object_get(choice, "delta");
        const json_t *text = chat ? json_object_get(delta, "content") : tool_member(choice, "text");
        if (text != NULL)
            strcat(all, json_string_value(text));
        const json_t *reason = tool_member(choice, "finish_reason");
        if (json_is_string(reason)) {
            ck_assert_str_eq(json_string_value(reason), finish);
            finished = true;
        }
        json_decref(event);
    }
    ck_assert(done && finished);
    free(copy);
    return all;
}

void server_write_adapter(const char *folder)
{
    enum { LAYERS = 5, WIDTH = 64, RANK = 2, HALF = WIDTH * RANK };
    static float values[LAYERS * 2 * HALF];
    char path[128], header[4096];
    size_t used = 0;
    for (int i = 0; i < LAYERS * 2; i++)
        used += (size_t)snprintf(
            header + used, sizeof header - used,
            "%c\"base_model.model.model.layers.%d.self_attn.q_proj.lora_%c.weight\":{\"dtype\":"
            "\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}",
            i == 0 ? '{' : ',', i / 2, i % 2 ? 'B' : 'A', i % 2 ? WIDTH : RANK,
            i % 2 ? RANK : WIDTH, 4 * HALF * i, 4 * HALF * (i + 1));
    used += (size_t)snprintf(header + used, sizeof header - used, "}");
    for (int i = 0; i < LAYERS * 2 * HALF; i++)
        values[i] = (float)(i * 37 % 101 - 50) * 0.01f;
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs("{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4}", file) >= 0 &&
              fclose(file) == 0);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)used >> (8 * i) & 255), file);
    fwrite(header, 1, used, file);
    fwrite(values, sizeof values, 1, file);
    ck_assert_int_eq(fclose(file), 0);
}
