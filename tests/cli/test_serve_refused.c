/* Tests that tessera serve refuses all requests of a table with the right status and a sentence, in
 * OpenAI's form, and goes on with good requests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "cli/server.h"
#include "cli/tool.h"
#include "support/check_main.h"

/* Bytes, with their number, because some are zero. */
typedef struct bytes {
    char *data;
    size_t size;
} bytes;

static void add_unescaped(FILE *out, const char *text, size_t size, bool raw)
{
    for (size_t i = 0; i < size; i++) {
        unsigned byte = 0;
        if (text[i] == '\\' && i + 3 < size && text[i + 1] == 'x' &&
            sscanf(text + i + 2, "%2x", &byte) == 1) {
            fputc((int)byte, out);
            i += 3;
        } else if (raw && text[i] == '\\' && i + 1 < size &&
                   (text[i + 1] == 'r' || text[i + 1] == 'n')) {
            fputc(text[++i] == 'r' ? '\r' : '\n', out);
        } else {
            fputc(text[i], out);
        }
    }
}

/* Replaces escapes and repetitions. */
static bytes expand(const char *text, bool raw)
{
    bytes b = {0};
    FILE *out = open_memstream(&b.data, &b.size);
    ck_assert_ptr_nonnull(out);
    for (const char *begin; (begin = strstr(text, "<<")) != NULL;) {
        const char *end = strstr(begin, ">>"), *star = end;
        ck_assert_ptr_nonnull(end);
        while (*star != '*')
            star--;
        add_unescaped(out, text, (size_t)(begin - text), raw);
        for (int i = atoi(star + 1); i > 0; i--)
            add_unescaped(out, begin + 2, (size_t)(star - begin - 2), raw);
        text = end + 2;
    }
    add_unescaped(out, text, strlen(text), raw);
    fclose(out);
    return b;
}

/* Sends bytes, and the end of the connection with `ends`, and reads all that comes. The server may
 * close the connection before it has read all. */
static bytes exchange(const server *s, const bytes *request, bool ends)
{
    bytes b = {0};
    char got[4096];
    const int fd = server_dial(s);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 10},
               sizeof(struct timeval));
    FILE *out = open_memstream(&b.data, &b.size);
    ck_assert_ptr_nonnull(out);
    for (size_t at = 0; at < request->size;) {
        const ssize_t sent = send(fd, request->data + at, request->size - at, MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        at += (size_t)sent;
    }
    if (ends)
        shutdown(fd, SHUT_WR);
    for (ssize_t size; (size = recv(fd, got, sizeof got, 0)) > 0;)
        fwrite(got, 1, (size_t)size, out);
    fclose(out);
    close(fd);
    return b;
}

/* Returns whether an answer is an error in OpenAI's form with these words. */
static bool has_words(const char *answer, const char *words)
{
    const char *body = strstr(answer, "\r\n\r\n");
    if (strcmp(words, "-") == 0)
        return true;
    json_t *json = body != NULL ? json_loads(body, 0, NULL) : NULL;
    const json_t *error = json_object_get(json, "error");
    const char *message = json_string_value(json_object_get(error, "message")),
               *type = json_string_value(json_object_get(error, "type"));
    const bool has = message != NULL && strstr(message, words) != NULL && type != NULL &&
                     strcmp(type, "invalid_request_error") == 0 &&
                     json_object_get(error, "param") != NULL &&
                     json_is_integer(json_object_get(error, "code"));
    json_decref(json);
    return has;
}

/* The server must go on. */
static void check_server(const server *s)
{
    json_t *json =
        server_post(s, 200, "/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 1}");
    json_decref(json);
}

/* A line's request must be refused. Returns whether it was not, and prints what is wrong. */
static bool is_accepted(const server *s, const char *head, char *line)
{
    char method[256], path[256];
    int status = 0, got = 0;
    char *words = strstr(line, " => ");
    ck_assert_msg(words != NULL, "%s", line);
    *words = '\0';
    words += 4;
    const bool raw = strncmp(head, "raw ", 4) == 0;
    bytes body = expand(line, raw), request = {0};
    FILE *out = open_memstream(&request.data, &request.size);
    ck_assert_ptr_nonnull(out);
    if (raw) {
        status = atoi(head + 4);
        fwrite(body.data, 1, body.size, out);
        fputs("\r\n\r\n", out);
    } else {
        ck_assert_int_eq(sscanf(head, "%255s %255s %d", method, path, &status), 3);
        bytes m = expand(method, false), p = expand(path, false);
        fprintf(out, "%s %s HTTP/1.0\r\nContent-Length: %zu\r\n\r\n", m.data, p.data, body.size);
        fwrite(body.data, 1, body.size, out);
        free(m.data);
        free(p.data);
    }
    fclose(out);
    bytes answer = exchange(s, &request, status == 0);
    const bool answered = sscanf(answer.data, "HTTP/1.%*d %d", &got) == 1;
    const bool good = status == 0 ? !answered || got >= 400
                                  : answered && got == status && has_words(answer.data, words);
    if (!good)
        fprintf(stderr, "%s: %.300s\n  instead of '%s': %.600s\n", head, line, words, answer.data);
    free(answer.data);
    free(request.data);
    free(body.data);
    return !good;
}

START_TEST(malformed_requests_are_refused)
{
    char line[4096], head[512] = "";
    int count = 0, wrong = 0;
    FILE *table = fopen(TEST_DATA "/serve/refused.txt", "r");
    ck_assert_ptr_nonnull(table);
    server s = server_start(SERVE "--parallel 1 --context 512");
    while (fgets(line, sizeof line, table) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '>')
            strcpy(head, line + 2);
        if (line[0] == '>' || line[0] == '#' || line[0] == '\0')
            continue;
        wrong += is_accepted(&s, head, line);
        if (++count % 8 == 0)
            check_server(&s);
    }
    fclose(table);
    check_server(&s);
    server_stop(&s);
    ck_assert_int_ge(count, 200);
    ck_assert_msg(wrong == 0, "%d of %d requests", wrong, count);
}
END_TEST

TESTS(serve_refused)
{
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, malformed_requests_are_refused);
}
