/* Tests tessera serve with ranks that are lost, at any time. TEST_LOST_ROUNDS is the number of
 * rounds in which streams lose ranks (default: 2), and TEST_LOST_SEED chooses when. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/server.h"
#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"

/* Processes ------------------------------------------------------------------------------------ */

/* Reads a file below /proc, whose lines or strings may be separated by zeros. Returns its size. */
static size_t read_proc(pid_t pid, const char *name, char *out, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "r");
    const size_t got = file != NULL ? fread(out, 1, size - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    out[got] = '\0';
    return got;
}

static pid_t parent_of(pid_t pid)
{
    char text[512];
    int parent = 0;
    read_proc(pid, "stat", text, sizeof text);
    const char *after = strrchr(text, ')');
    return after != NULL && sscanf(after, ") %*c %d", &parent) == 1 ? parent : 0;
}

static bool has_variable(pid_t pid, const char *variable)
{
    static char text[65536];
    const size_t size = read_proc(pid, "environ", text, sizeof text);
    for (const char *at = text; at < text + size; at += strlen(at) + 1)
        if (strcmp(at, variable) == 0)
            return true;
    return false;
}

/* Finds the process of a job that has this variable, such as RANK=2, or returns 0. */
static pid_t find_rank(const server *s, const char *variable)
{
    DIR *all = opendir("/proc");
    pid_t found = 0;
    ck_assert_ptr_nonnull(all);
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        const pid_t pid = atoi(entry->d_name);
        pid_t above = pid;
        while (above > 1 && above != s->pid)
            above = parent_of(above);
        if (pid != s->pid && above == s->pid && has_variable(pid, variable))
            found = pid;
    }
    closedir(all);
    return found;
}

/* Ends a job by a signal to rank 0. Returns what it has said on standard error. */
static char *stop_and_hear(server *s)
{
    int status = 0;
    static char text[16384];
    ck_assert_int_eq(kill(find_rank(s, "RANK=0"), SIGTERM), 0);
    ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
    rewind(s->err);
    text[fread(text, 1, sizeof text - 1, s->err)] = '\0';
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d: %s", status, text);
    fclose(s->out);
    fclose(s->err);
    return text;
}

/* Chooses one of the processes of a job that serve, except for rank 0 and `other`. Returns 0 if
 * there is none. */
static pid_t find_victim(const server *s, unsigned choice, pid_t other)
{
    char command[512];
    pid_t found[16];
    unsigned count = 0;
    DIR *all = opendir("/proc");
    ck_assert_ptr_nonnull(all);
    for (struct dirent *entry; (entry = readdir(all)) != NULL && count < 16;) {
        const pid_t pid = atoi(entry->d_name);
        if (pid == 0 || pid == other || parent_of(pid) != s->pid || has_variable(pid, "RANK=0") ||
            read_proc(pid, "cmdline", command, sizeof command) == 0)
            continue;
        if (strcmp(command + strlen(command) + 1, "serve") == 0)
            found[count++] = pid;
    }
    closedir(all);
    return count > 0 ? found[choice % count] : 0;
}

static unsigned seed;

static unsigned choose(unsigned below)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 8) % below;
}

static void pause_ms(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

static unsigned number_of(const char *variable, unsigned usual)
{
    const char *text = getenv(variable);
    return text != NULL ? (unsigned)atoi(text) : usual;
}

/* Losses --------------------------------------------------------------------------------------- */

#define STREAM_OF(tokens) "{" PROMPT ", \"max_tokens\": " #tokens ", \"stream\": true}"
#define KINDS 4
#define STREAMS 8

/* Asks for the text of a kind. The same one comes each time. Half of them have an adapter. */
static int ask_for(const server *s, int kind)
{
    static const char *const prompts[KINDS] = {"Once upon a time", "The dog", "One day", "Lily"};
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\": \"%s\", \"temperature\": %d, \"seed\": 5, \"max_tokens\": 100, "
             "\"stream\": true%s}",
             prompts[kind], kind % 2, kind > 1 ? ", \"lora\": \"pets\"" : "");
    return server_ask(s, "POST", "/v1/completions", "", body);
}

static char *hear_text(int client)
{
    reply r = server_hear(client);
    ck_assert_int_eq(r.status, 200);
    ck_assert_msg(strstr(r.body, "[DONE]") != NULL, "%s", r.body);
    char *text = server_streamed(r.body, false, "length");
    free(r.text);
    return text;
}

/* Kills or stops a rank under streams, in some rounds a second one while the others divide the
 * model again. All streams must end with the text of an undisturbed run. */
static void lose_ranks(server *s, unsigned round, char *const *wanted)
{
    int clients[STREAMS];
    const bool stops = round % 4 == 1;
    for (int i = 0; i < STREAMS; i++)
        clients[i] = ask_for(s, i % KINDS);
    pause_ms(choose(1000));
    const pid_t victim = find_victim(s, choose(16), 0);
    ck_assert_int_gt(victim, 0);
    ck_assert_int_eq(kill(victim, stops ? SIGSTOP : SIGKILL), 0);
    if (round % 3 == 0) {
        pause_ms(30 + choose(600));
        const pid_t second = find_victim(s, choose(16), victim);
        if (second != 0)
            kill(second, SIGKILL);
    }
    for (int i = 0; i < STREAMS; i++) {
        char *text = hear_text(clients[i]);
        ck_assert_msg(strcmp(text, wanted[i % KINDS]) == 0, "round %u, stream %d: %s", round, i,
                      text);
        free(text);
    }
    char *text = hear_text(ask_for(s, 0));
    ck_assert_str_eq(text, wanted[0]);
    free(text);
    if (stops)
        kill(victim, SIGKILL);
    server_await(s, "ranks", 3);
}

/* A rank is killed while the model is loaded; others under streams; and at last rank 0, after which
 * all ranks are started again. */
START_TEST(lost_ranks_cost_no_request)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    char *wanted[KINDS], folder[] = "/tmp/tessera-lost-XXXXXX", command[512];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    server_write_adapter(folder);
    snprintf(command, sizeof command,
             "launch -n 3 --respawn 1000 --no-prefix -- " TEST_TOOL " " SERVE
             "--parallel 8 --lost-after 10 --lora pets=%s",
             folder);
    seed = number_of("TEST_LOST_SEED", (unsigned)time(NULL));
    fprintf(stderr, "TEST_LOST_SEED=%u\n", seed);
    server s = server_begin(command);
    pid_t victim = 0;
    while (victim == 0) {
        pause_ms(choose(500));
        victim = find_victim(&s, choose(16), 0);
    }
    ck_assert_int_eq(kill(victim, SIGKILL), 0);
    server_await_ready(&s);
    for (int i = 0; i < KINDS; i++)
        wanted[i] = hear_text(ask_for(&s, i));
    server_await(&s, "ranks", 3);
    const unsigned rounds = number_of("TEST_LOST_ROUNDS", 2);
    for (unsigned i = 0; i < rounds; i++)
        lose_ranks(&s, i, wanted);
    ck_assert_double_ge(server_metric(&s, "ranks_lost_total"), rounds);
    const int client = ask_for(&s, 0);
    ck_assert_int_eq(kill(find_rank(&s, "RANK=0"), SIGKILL), 0);
    close(client);
    server_await_ready(&s);
    server_await(&s, "ranks", 3);
    char *text = hear_text(ask_for(&s, 0));
    ck_assert_str_eq(text, wanted[0]);
    free(text);
    for (int i = 0; i < KINDS; i++)
        free(wanted[i]);
    const char *said = stop_and_hear(&s);
    tests_remove(folder);
    ck_assert_msg(rounds == 0 || (strstr(said, "ranks go on") != NULL &&
                                  strstr(said, "ranks have joined") != NULL),
                  "%s", said);
}
END_TEST

/* One rank alone has too little memory: requests fail with the numbers, and the server stays. */
START_TEST(too_few_ranks_are_told)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    server s = server_start("launch -n 2 --keep-going --no-prefix -- " TEST_TOOL " " SERVE
                            "--parallel 1 --memory 700K");
    const int client = server_ask(&s, "POST", "/v1/completions", "", STREAM_OF(300));
    server_await(&s, "generated_tokens_total", 20);
    ck_assert_int_eq(kill(find_rank(&s, "RANK=1"), SIGKILL), 0);
    static const char *const wanted[] = {"\"code\":503",
                                         "1 of 2 ranks cannot hold the model: model: the weights "
                                         "and the cache of rank 0 of 1 need 1.1 MiB"};
    reply r = server_hear(client);
    ck_assert_msg(strstr(r.body, wanted[0]) != NULL && strstr(r.body, wanted[1]) != NULL, "%s",
                  r.body);
    free(r.text);
    json_t *json = server_post(&s, 503, "/v1/completions", "{" PROMPT ", \"max_tokens\": 5}");
    ck_assert_ptr_nonnull(strstr(tool_text(tool_member(json, "error"), "message"), wanted[1]));
    json_decref(json);
    r = server_call(&s, "GET", "/health", "");
    ck_assert_int_eq(r.status, 503);
    ck_assert_ptr_nonnull(strstr(r.body, "\"status\":\"unavailable\",\"ranks\":1,"));
    free(r.text);
    stop_and_hear(&s);
}
END_TEST

/* Without a rank the server goes on, with drafts of a model, and says so. The job ends if the rank
 * with the connections is lost. */
START_TEST(the_first_rank_is_needed)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    int status = 0;
    char text[16384];
    server s = server_start("launch -n 3 --keep-going --no-prefix -- " TEST_TOOL " " SERVE
                            "--draft " MODEL ":1");
    const pid_t victim = find_rank(&s, "RANK=2");
    const int client = server_ask(&s, "POST", "/v1/completions", "", STREAM_OF(120));
    server_await(&s, "generated_tokens_total", 20);
    ck_assert_int_eq(kill(victim, SIGKILL), 0);
    char *text_of_all = hear_text(client);
    server_await(&s, "ranks_lost_total", 1);
    char *text_of_two = hear_text(server_ask(&s, "POST", "/v1/completions", "", STREAM_OF(40)));
    ck_assert_uint_gt(strlen(text_of_two), 0);
    ck_assert_int_eq(strncmp(text_of_all, text_of_two, strlen(text_of_two)), 0);
    /* The two ranks count from 0, and their first steps have drafts, which are right. */
    ck_assert_double_gt(server_metric(&s, "draft_tokens_accepted_total"), 0);
    free(text_of_all);
    free(text_of_two);
    reply r = server_call(&s, "GET", "/health", "");
    ck_assert_ptr_nonnull(strstr(r.body, "\"status\":\"degraded\",\"ranks\":2,\"wanted_ranks\":3"));
    free(r.text);
    ck_assert_int_eq(kill(find_rank(&s, "RANK=0"), SIGKILL), 0);
    ck_assert_int_eq(waitpid(s.pid, &status, 0), s.pid);
    rewind(s.err);
    text[fread(text, 1, sizeof text - 1, s.err)] = '\0';
    ck_assert_msg(
        strstr(text, "serve: rank 0, which has the connections of all clients, is lost") != NULL,
        "%s", text);
    fclose(s.out);
    fclose(s.err);
}
END_TEST

/* --experts may name more hosts than there are ranks when some are lost. */
START_TEST(fewer_ranks_than_hosts_of_experts_go_on)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    server s = server_start("launch -n 4 --keep-going --no-prefix -- " TEST_TOOL " serve " TEST_DATA
                            "/model/families/mixtral/mixtral-f16.gguf --port 0 --experts mixed:4");
    ck_assert_int_eq(kill(find_rank(&s, "RANK=2"), SIGKILL), 0);
    ck_assert_int_eq(kill(find_rank(&s, "RANK=3"), SIGKILL), 0);
    json_decref(server_post(&s, 200, "/v1/completions", "{\"prompt\": [1], \"max_tokens\": 3}"));
    server_await(&s, "ranks_lost_total", 2);
    stop_and_hear(&s);
}
END_TEST

TESTS(serve_lost)
{
    tcase_set_timeout(tests, 1800);
    tcase_add_test(tests, lost_ranks_cost_no_request);
    tcase_add_test(tests, too_few_ranks_are_told);
    tcase_add_test(tests, fewer_ranks_than_hosts_of_experts_go_on);
    tcase_add_test(tests, the_first_rank_is_needed);
}
