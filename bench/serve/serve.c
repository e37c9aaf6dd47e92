/* The measurements of tessera bench serve. */
#include "bench/serve/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"

#define MOST_SERVERS 8
#define MOST_COUNTS 16
#define MOST_STREAMS 1024
#define MOST_ROUNDS 99

static struct {
    int64_t tokens, prompt_words, rounds;
    int counts[MOST_COUNTS], count;
    const char *key_file;
    bool json;
} chosen = {.tokens = 64, .prompt_words = 200, .rounds = 3, .counts = {1, 2, 4, 8}, .count = 4};

static bool read_counts(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    chosen.count = 0;
    for (const char *at = text;;) {
        char *end = NULL;
        const long value = strtol(at, &end, 10);
        if (end == at || value < 1 || value > MOST_STREAMS || chosen.count == MOST_COUNTS ||
            (*end != ',' && *end != '\0')) {
            snprintf(problem, size, "takes up to %d numbers from 1 to %d, such as 1,4,16, not '%s'",
                     MOST_COUNTS, MOST_STREAMS, text);
            return false;
        }
        chosen.counts[chosen.count++] = (int)value;
        if (*end == '\0')
            return true;
        at = end + 1;
    }
}

static const cli_option options[] = {
    {"streams", "LIST", "numbers of texts at the same time (default: 1,2,4,8)",
     .read = read_counts},
    {"tokens", "N", "tokens of each text (default: 64)", .integer = &chosen.tokens, .low = 2,
     .high = 1 << 20},
    {"prompt-words", "N", "words of the long prompt (default: 200)",
     .integer = &chosen.prompt_words, .low = 1, .high = 1 << 20},
    {"rounds", "N", "how often everything is measured; the medians count (default: 3)",
     .integer = &chosen.rounds, .low = 1, .high = MOST_ROUNDS},
    {"api-key-file", "FILE", "the key in the first line of this file is sent to the servers",
     .text = &chosen.key_file},
    {"json", NULL, "print JSON", .flag = &chosen.json},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(out, "Measures servers of OpenAI's HTTP API (tessera serve, llama-server and others) "
                  "by streamed completions, and prints the results side by side: tokens per second "
                  "of several texts together, and the time to the first text of a long prompt, of "
                  "a second prompt that begins with it and goes on, as the next turn of a "
                  "conversation does, and of a short prompt beside a long one. All is measured in "
                  "several rounds, in which the servers take turns, after one that does not count. "
                  "URL is such as http://127.0.0.1:8080.\n");
    cli_options_help(out, options);
}

/* What was measured of a server. Times are in seconds. */
enum {
    PER_SECOND,          /* tokens, of all texts together, for each of chosen.counts */
    FIRST = MOST_COUNTS, /* the median time to the first text, for each */
    LONG_PROMPT = 2 * MOST_COUNTS,
    NEXT_TURN,
    SHORT_ALONE,
    SHORT_BESIDE,
    VALUES
};
typedef struct results {
    double rounds[MOST_ROUNDS + 1][VALUES];
    double medians[VALUES];
    int64_t long_tokens;
} results;

/* One text of several at the same time. */
typedef struct stream {
    const bench_server *server;
    const char *key;
    char *prompt;
    int64_t tokens;
    bench_reply text;
    pthread_t thread;
} stream;

/* Writes a prompt of words that no earlier prompt began with, so that no server has computed its
 * beginning before. For free(). */
static char *new_prompt(int64_t words)
{
    static const char *const some[] = {"river", "stone", "green", "seven", "cloud", "paper",
                                       "house", "never", "small", "light", "under", "music"};
    static uint64_t number;
    const size_t most = (size_t)words * 8 + 64;
    char *text = cli_alloc(most, 1);
    uint64_t state = ++number * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)time(NULL);
    size_t size = 0;
    for (int64_t i = 0; i < words; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        size += (size_t)snprintf(text + size, most - size, "%s%s", i == 0 ? "" : " ",
                                 some[(state >> 33) % (sizeof some / sizeof *some)]);
    }
    return text;
}

static void *run_stream(void *user)
{
    stream *s = user;
    bench_server_complete(s->server, s->key, s->prompt, s->tokens, &s->text);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int failed_at(const bench_server *server, const char *problem)
{
    return cli_failed("bench serve: %s: %s", server->url, problem);
}

/* Measures `count` texts at the same time. */
static int measure_streams(const bench_server *server, const char *key, int count,
                           double *per_second, double *first)
{
    stream *all = cli_alloc((size_t)count, sizeof *all);
    double *firsts = cli_alloc((size_t)count, sizeof *firsts), begin = 1e300, end = 0;
    int64_t tokens = 0;
    int code = CLI_DONE, started = 0;
    for (; started < count && code == CLI_DONE; started++) {
        all[started] = (stream){
            .server = server, .key = key, .prompt = new_prompt(8), .tokens = chosen.tokens};
        if (pthread_create(&all[started].thread, NULL, run_stream, &all[started]) != 0) {
            free(all[started].prompt);
            code = cli_failed("bench serve: cannot start %d threads", count);
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        const bench_reply *t = &all[i].text;
        pthread_join(all[i].thread, NULL);
        if (t->problem[0] != '\0' && code == CLI_DONE)
            code = failed_at(server, t->problem);
        firsts[i] = t->first_s;
        begin = t->first_s < begin ? t->first_s : begin;
        end = t->end_s > end ? t->end_s : end;
        tokens += t->tokens - 1; /* the first ones came before `begin` */
        free(all[i].prompt);
    }
    qsort(firsts, (size_t)started, sizeof *firsts, by_value);
    *per_second = end > begin ? (double)tokens / (end - begin) : 0;
    *first = started > 0 ? firsts[started / 2] : 0;
    free(firsts);
    free(all);
    return code;
}

/* Measures the time to the first text of a prompt. */
static int measure_first(const bench_server *server, const char *key, const char *prompt,
                         double *first, int64_t *tokens)
{
    bench_reply text;
    bench_server_complete(server, key, prompt, 2, &text);
    *first = text.first_s;
    if (tokens != NULL)
        *tokens = text.prompt_tokens;
    return text.problem[0] == '\0' ? CLI_DONE : failed_at(server, text.problem);
}

static int measure_turns(const bench_server *server, const char *key, double *values,
                         int64_t *long_tokens)
{
    char *prompt = new_prompt(chosen.prompt_words);
    int code = measure_first(server, key, prompt, &values[LONG_PROMPT], long_tokens);
    prompt = cli_resize(prompt, strlen(prompt) + 32, 1);
    strcat(prompt, " and so on, again");
    if (code == CLI_DONE)
        code = measure_first(server, key, prompt, &values[NEXT_TURN], NULL);
    free(prompt);
    return code;
}

static int measure_beside(const bench_server *server, const char *key, double *values)
{
    char *small = new_prompt(4);
    stream large = {
        .server = server, .key = key, .prompt = new_prompt(chosen.prompt_words), .tokens = 2};
    int code = measure_first(server, key, small, &values[SHORT_ALONE], NULL);
    free(small);
    if (code == CLI_DONE && pthread_create(&large.thread, NULL, run_stream, &large) == 0) {
        small = new_prompt(4);
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        code = measure_first(server, key, small, &values[SHORT_BESIDE], NULL);
        pthread_join(large.thread, NULL);
        free(small);
        if (code == CLI_DONE && large.text.problem[0] != '\0')
            code = failed_at(server, large.text.problem);
    }
    free(large.prompt);
    return code;
}

static int measure_round(const bench_server *server, const char *key, double *values,
                         int64_t *long_tokens)
{
    int code = CLI_DONE;
    for (int i = 0; i < chosen.count && code == CLI_DONE; i++)
        code = measure_streams(server, key, chosen.counts[i], &values[PER_SECOND + i],
                               &values[FIRST + i]);
    if (code == CLI_DONE)
        code = measure_turns(server, key, values, long_tokens);
    return code == CLI_DONE ? measure_beside(server, key, values) : code;
}

/* The first round does not count: devices compile kernels in it. */
static void find_medians(results *r)
{
    double sorted[MOST_ROUNDS];
    const size_t rounds = (size_t)chosen.rounds;
    for (int v = 0; v < VALUES; v++) {
        for (size_t i = 0; i < rounds; i++)
            sorted[i] = r->rounds[i + 1][v];
        qsort(sorted, rounds, sizeof *sorted, by_value);
        r->medians[v] = (sorted[rounds / 2] + sorted[(rounds - 1) / 2]) / 2;
    }
}

/* Measures all servers, in turn, so that what else the machine does concerns all of them. */
static int measure(bench_server *servers, const char *key, results *all, int count)
{
    char problem[256];
    for (int i = 0; i < count; i++)
        if (!bench_server_find_model(&servers[i], key, problem, sizeof problem))
            return failed_at(&servers[i], problem);
    for (int64_t round = 0; round <= chosen.rounds; round++)
        for (int i = 0; i < count; i++) {
            const int code =
                measure_round(&servers[i], key, all[i].rounds[round], &all[i].long_tokens);
            if (code != CLI_DONE)
                return code;
        }
    for (int i = 0; i < count; i++)
        find_medians(&all[i]);
    return CLI_DONE;
}

/* Output --------------------------------------------------------------------------------------- */

static void print_json(const bench_server *servers, const results *all, int count)
{
    json_t *document = cli_json_document("tessera.bench.serve", 1);
    json_t *list = cli_json_add_array(document, "servers");
    for (int i = 0; i < count; i++) {
        json_t *one = cli_json_append_object(list);
        cli_json_text(one, "url", servers[i].url);
        cli_json_text(one, "model", servers[i].model);
        json_t *streams = cli_json_add_array(one, "streams");
        for (int k = 0; k < chosen.count; k++) {
            json_t *row = cli_json_append_object(streams);
            cli_json_u64(row, "streams", (uint64_t)chosen.counts[k]);
            cli_json_real(row, "tokens_per_second", all[i].medians[PER_SECOND + k]);
            cli_json_real(row, "first_s", all[i].medians[FIRST + k]);
        }
        cli_json_u64(one, "long_prompt_tokens", (uint64_t)all[i].long_tokens);
        cli_json_real(one, "long_prompt_s", all[i].medians[LONG_PROMPT]);
        cli_json_real(one, "next_turn_s", all[i].medians[NEXT_TURN]);
        cli_json_real(one, "short_alone_s", all[i].medians[SHORT_ALONE]);
        cli_json_real(one, "short_beside_s", all[i].medians[SHORT_BESIDE]);
    }
    cli_json_print(document);
}

static void print_text(const bench_server *servers, const results *all, int count)
{
    cli_table *table = cli_table_create();
    cli_table_column(table, "", CLI_LEFT);
    for (int i = 0; i < count; i++)
        cli_table_column(table, servers[i].url, CLI_RIGHT);
    for (int k = 0; k < chosen.count; k++) {
        cli_table_cell(table, "%d text%s: tokens/s", chosen.counts[k],
                       CLI_PLURAL(chosen.counts[k]));
        for (int i = 0; i < count; i++)
            cli_table_cell(table, "%.1f", all[i].medians[PER_SECOND + k]);
    }
    for (int k = 0; k < chosen.count; k++) {
        cli_table_cell(table, "%d text%s: first after", chosen.counts[k],
                       CLI_PLURAL(chosen.counts[k]));
        for (int i = 0; i < count; i++)
            cli_table_cell(table, "%.1f ms", all[i].medians[FIRST + k] * 1e3);
    }
    const char *const names[] = {"long prompt: first after", "next turn: first after",
                                 "short prompt: first after", "beside a long one: first after"};
    for (size_t r = 0; r < sizeof names / sizeof *names; r++) {
        cli_table_cell(table, "%s", names[r]);
        for (int i = 0; i < count; i++)
            cli_table_cell(table, "%.1f ms", all[i].medians[LONG_PROMPT + r] * 1e3);
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

static int read_key(char *key, size_t size)
{
    FILE *file = fopen(chosen.key_file, "r");
    const bool read = file != NULL && fgets(key, (int)size, file) != NULL;
    const int error = errno;
    if (file != NULL)
        fclose(file);
    if (!read)
        return cli_failed("bench serve: cannot read the API key from %s: %s", chosen.key_file,
                          file == NULL ? strerror(error) : "the file is empty");
    key[strcspn(key, "\r\n")] = '\0';
    return CLI_DONE;
}

static int run(int argc, char **argv)
{
    const char *words[MOST_SERVERS];
    bench_server servers[MOST_SERVERS];
    char key[256] = "";
    int count = 0;
    int code = cli_options_read("bench serve", options, argc, argv, MOST_SERVERS, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count == 0)
        return cli_usage_error("bench serve: missing URL, such as http://127.0.0.1:8080");
    for (int i = 0; i < count; i++)
        if (!bench_server_read(words[i], &servers[i]))
            return cli_usage_error("bench serve: '%s' is not a URL such as http://127.0.0.1:8080",
                                   words[i]);
    results *all = cli_alloc(MOST_SERVERS, sizeof *all);
    if (chosen.key_file != NULL)
        code = read_key(key, sizeof key);
    if (code == CLI_DONE)
        code = measure(servers, key[0] != '\0' ? key : NULL, all, count);
    if (code == CLI_DONE && chosen.json)
        print_json(servers, all, count);
    else if (code == CLI_DONE)
        print_text(servers, all, count);
    free(all);
    return code;
}

const cli_command bench_serve_command = {
    .name = "bench serve",
    .usage = "URL... [options]",
    .summary = "measure servers of OpenAI's HTTP API",
    .run = run,
    .help = help,
};
