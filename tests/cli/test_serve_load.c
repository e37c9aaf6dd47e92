/* Tests tessera serve with many clients, slow ones, and those that vanish. */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cli/server.h"
#include "cli/tool.h"
#include "support/check_main.h"

#define CLIENTS 64
#define IDLE 1000

static server shared;

static void start_shared(void)
{
    struct rlimit files;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    /* The server raises its own limit. */
    shared = server_start(SERVE "--parallel 16 --queue 64 --context 512 --connections 2000");
    files.rlim_cur = files.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
}

static void stop_shared(void)
{
    server_stop(&shared);
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

/* Memory ---------------------------------------------------------------------------------------
 */

static long resident_kib(void)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)shared.pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    fclose(file);
    return kib;
}

static int ask_briefly(int kind, bool stream)
{
    static const char *const prompts[] = {"Once upon a time", "The dog", "One day", "Lily"};
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\": \"%s\", \"temperature\": 0, \"max_tokens\": 5, \"stream\": %s}",
             prompts[kind], stream ? "true" : "false");
    return server_ask(&shared, "POST", "/v1/completions", "", body);
}

static char *hear_briefly(int client, bool stream)
{
    reply r = server_hear(client);
    ck_assert_msg(r.status == 200, "%s", r.text);
    char *text = NULL;
    if (stream) {
        text = server_streamed(r.body, false, "length");
    } else {
        json_t *json = json_loads(r.body, 0, NULL);
        text = strdup(tool_text(server_choice(json), "text"));
        json_decref(json);
    }
    free(r.text);
    return text;
}

/* 64 clients at once, three times: each gets the text that it gets alone, and memory stays. */
START_TEST(many_clients_are_served)
{
    char *wanted[4];
    long before = 0;
    for (int i = 0; i < 4; i++)
        wanted[i] = hear_briefly(ask_briefly(i, false), false);
    for (int round = 0; round < 3; round++) {
        int clients[CLIENTS];
        for (int i = 0; i < CLIENTS; i++)
            clients[i] = ask_briefly(i % 4, i % 3 == 0);
        for (int i = 0; i < CLIENTS; i++) {
            char *text = hear_briefly(clients[i], i % 3 == 0);
            ck_assert_str_eq(text, wanted[i % 4]);
            free(text);
        }
        if (round == 1)
            before = resident_kib();
    }
    const long after = resident_kib();
    ck_assert_msg(after < before + 8192, "%ld KiB, then %ld KiB", before, after);
    for (int i = 0; i < 4; i++)
        free(wanted[i]);
}
END_TEST

/* Connections on which nothing happens. */
START_TEST(idle_connections_disturb_nobody)
{
    struct rlimit files;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_cur < IDLE + 100)
        SKIP("this system allows only %ld files", (long)files.rlim_cur);
    int idle[IDLE];
    for (int i = 0; i < IDLE; i++)
        idle[i] = server_dial(&shared);
    free(hear_briefly(ask_briefly(0, true), true));
    free(hear_briefly(ask_briefly(0, false), false));
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
}
END_TEST

/* Slow clients --------------------------------------------------------------------------------- */

/* Clients that send a few bytes at a time are served, and so are those that do not read what comes,
 * once they do. Others do not wait for them. */
START_TEST(slow_clients_are_served)
{
    static const char request[] =
        "POST /v1/completions HTTP/1.0\r\nContent-Length: 65\r\n\r\n"
        "{\"prompt\": \"Once upon a time\", \"temperature\": 0, \"max_tokens\": 5}";
    int readers[4];
    for (int i = 0; i < 4; i++) {
        readers[i] = server_dial(&shared);
        setsockopt(readers[i], SOL_SOCKET, SO_RCVBUF, &(int){16384}, sizeof(int));
        static const char body[] =
            "{\"prompt\": \"Once upon a time\", \"temperature\": 0, \"max_tokens\": 250, "
            "\"logprobs\": 2, \"stream\": true}";
        char text[512];
        const int size = snprintf(text, sizeof text,
                                  "POST /v1/completions HTTP/1.0\r\nContent-Length: "
                                  "%zu\r\n\r\n%s",
                                  sizeof body - 1, body);
        server_put(readers[i], text, (size_t)size);
    }
    server_await(&shared, "requests_running", 4);
    char *wanted = hear_briefly(ask_briefly(0, false), false);
    const int sender = server_dial(&shared);
    for (size_t at = 0; at < sizeof request - 1; at += 7) {
        server_put(sender, request + at, sizeof request - 1 - at < 7 ? sizeof request - 1 - at : 7);
        pause_ms(2);
    }
    char *text = hear_briefly(sender, false);
    ck_assert_str_eq(text, wanted);
    free(text);
    for (int i = 0; i < 4; i++) {
        setsockopt(readers[i], SOL_SOCKET, SO_RCVBUF, &(int){1 << 20}, sizeof(int));
        reply r = server_hear(readers[i]);
        text = server_streamed(r.body, false, "length");
        ck_assert_int_eq(strncmp(text, wanted, strlen(wanted)), 0);
        free(text);
        free(r.text);
    }
    free(wanted);
}
END_TEST

/* A long text, of which finding the tokens takes a second, does not keep others waiting. */
START_TEST(long_texts_hold_up_nobody)
{
    const size_t words = 300000;
    char *body = malloc(words * 7 + 64);
    ck_assert_ptr_nonnull(body);
    char *end = body + sprintf(body, "{\"content\": \"");
    for (size_t i = 0; i < words; i++)
        end += sprintf(end, i % 3 == 0 ? "river " : "stones ");
    strcpy(end, "\"}");
    const int client = server_ask(&shared, "POST", "/tokenize", "", body);
    pause_ms(100);
    free(hear_briefly(ask_briefly(0, true), true));
    struct pollfd one = {.fd = client, .events = POLLIN};
    ck_assert_int_eq(poll(&one, 1, 0), 0);
    reply r = server_hear(client);
    ck_assert_int_eq(r.status, 200);
    free(r.text);
    free(body);
}
END_TEST

/* Closes a connection; with `reset`, by a reset instead of an end. */
static void vanish(int fd, bool reset)
{
    const struct linger now = {.l_onoff = 1};
    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

/* Clients that vanish at each point of an exchange. Afterwards nothing runs. */
START_TEST(clients_vanish_at_every_point)
{
    static const char request[] =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 97\r\n\r\n"
        "{\"prompt\": \"Once upon a time\", \"temperature\": 0, \"max_tokens\": 500, \"stream\": "
        "true, \"n\":  2     }";
    const size_t whole = sizeof request - 1, headers = whole - 97;
    const struct {
        size_t sent, heard; /* bytes */
    } points[] = {{0, 0},           {1, 0},       {10, 0},          {headers - 4, 0},
                  {headers - 1, 0}, {headers, 0}, {headers + 1, 0}, {whole - 1, 0},
                  {whole, 0},       {whole, 1},   {whole, 200},     {whole, 1000},
                  {whole, 5000}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int reset = 0; reset < 2; reset++) {
            char bytes[5000];
            const int fd = server_dial(&shared);
            server_put(fd, request, points[i].sent);
            if (points[i].heard > 0)
                ck_assert_int_eq((int)recv(fd, bytes, points[i].heard, MSG_WAITALL),
                                 (int)points[i].heard);
            else if (points[i].sent == whole)
                pause_ms(reset ? 0 : 3);
            vanish(fd, reset != 0);
        }
    free(hear_briefly(ask_briefly(0, false), false));
    while (server_metric(&shared, "requests_running") + server_metric(&shared, "requests_waiting") >
           0)
        pause_ms(20);
    ck_assert_double_ge(server_metric(&shared, "requests_cancelled_total"), 8);
}
END_TEST

/* Metrics -------------------------------------------------------------------------------------- */

/* Reads the lines of one metric: help, type, and values. Returns the line after them. */
static char *check_metric(char *line)
{
    char name[128], type[32], label[64];
    double value, most = 0, last = 0;
    int lines = 0;
    ck_assert_int_eq(sscanf(line, "# HELP tessera_%127s", name), 1);
    line = strchr(line, '\n') + 1;
    const size_t size = strlen(name);
    ck_assert_msg(strncmp(line, "# TYPE tessera_", 15) == 0 &&
                      strncmp(line + 15, name, size) == 0 &&
                      sscanf(line + 15 + size, " %31s", type) == 1,
                  "%.200s", line);
    const bool is_histogram = strcmp(type, "histogram") == 0;
    ck_assert_msg(is_histogram || strcmp(type, "gauge") == 0 ||
                      (strcmp(type, "counter") == 0 && strstr(name, "_total") != NULL),
                  "%s is a %s", name, type);
    for (line = strchr(line, '\n') + 1; *line != '#' && *line != '\0';
         line = strchr(line, '\n') + 1, lines++) {
        ck_assert_msg(strncmp(line, "tessera_", 8) == 0 && strncmp(line + 8, name, size) == 0,
                      "%.200s", line);
        const char *rest = line + 8 + size;
        if (!is_histogram) {
            ck_assert_msg(sscanf(rest, " %lf", &value) == 1 && value >= 0, "%.200s", line);
        } else if (sscanf(rest, "_bucket{le=\"%63[^\"]\"} %lf", label, &value) == 2) {
            const double bound = strcmp(label, "+Inf") == 0 ? HUGE_VAL : atof(label);
            ck_assert_msg(bound > most && value >= last, "%.200s", line);
            most = bound;
            last = value;
        } else if (sscanf(rest, "_count %lf", &value) == 1) {
            ck_assert_msg(most == HUGE_VAL && value == last, "%.200s", line);
        } else {
            ck_assert_msg(sscanf(rest, "_sum %lf", &value) == 1, "%.200s", line);
        }
    }
    ck_assert_msg(is_histogram ? lines > 3 : lines == 1, "%s has %d lines", name, lines);
    return line;
}

START_TEST(metrics_have_their_form)
{
    int count = 0;
    reply r = server_call(&shared, "GET", "/metrics", "");
    ck_assert_ptr_nonnull(strstr(r.text, "Content-Type: text/plain; version=0.0.4"));
    for (char *line = r.body; *line != '\0'; count++)
        line = check_metric(line);
    ck_assert_int_ge(count, 20);
    free(r.text);
}
END_TEST

TESTS(serve_load)
{
    tcase_set_timeout(tests, 300);
    tcase_add_unchecked_fixture(tests, start_shared, stop_shared);
    tcase_add_test(tests, many_clients_are_served);
    tcase_add_test(tests, idle_connections_disturb_nobody);
    tcase_add_test(tests, slow_clients_are_served);
    tcase_add_test(tests, long_texts_hold_up_nobody);
    tcase_add_test(tests, clients_vanish_at_every_point);
    tcase_add_test(tests, metrics_have_their_form);
}
