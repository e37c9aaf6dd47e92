/* Tests tessera serve with clients of its own: texts, streams, limits, clients that go away, keys,
 * signals and several ranks. The texts must be those of `tessera generate`. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/server.h"
#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"
#include "tessera/tessera.h"

#define MESSAGES "\"messages\": [{\"role\": \"user\", \"content\": \"Tell me a story.\"}]"

/* Texts ---------------------------------------------------------------------------------------- */

static server shared;

static void start_shared(void)
{
    shared = server_start(SERVE "--parallel 2 --queue 1 --context 512 --piece 32");
}

static void stop_shared(void)
{
    server_stop(&shared);
}

/* The text that the server gives for PROMPT, which is that of `generate`. For free(). */
static char *usual_text(int tokens)
{
    json_t *json =
        server_post(&shared, 200, "/v1/completions", "{" PROMPT ", \"max_tokens\": %d}", tokens);
    char *copy = strdup(tool_text(server_choice(json), "text"));
    ck_assert_ptr_nonnull(copy);
    json_decref(json);
    return copy;
}

START_TEST(texts_are_those_of_generate)
{
    json_t *alone =
        tool_json("generate " MODEL " --greedy --json --max-tokens 40 --ids 1,403,407,261,378",
                  "tessera.generate");
    const char *wanted = tool_text(alone, "generated_text");
    json_t *json = server_post(&shared, 200, "/v1/completions", "{" PROMPT ", \"max_tokens\": 40}");
    const json_t *choice = server_choice(json), *usage = tool_member(json, "usage");
    ck_assert_str_eq(tool_text(choice, "text"), wanted);
    ck_assert_str_eq(tool_text(choice, "finish_reason"), "length");
    ck_assert_str_eq(tool_text(json, "object"), "text_completion");
    ck_assert_str_eq(tool_text(json, "model"), "stories");
    ck_assert_double_eq(tool_number(usage, "prompt_tokens"), 5);
    ck_assert_double_eq(tool_number(usage, "completion_tokens"), 40);
    json_decref(json);
    /* token ids as a prompt */
    json = server_post(
        &shared, 200, "/v1/completions",
        "{\"prompt\": [1, 403, 407, 261, 378], \"temperature\": 0, \"max_tokens\": 40}");
    ck_assert_str_eq(tool_text(server_choice(json), "text"), wanted);
    json_decref(json);
    reply r = server_call(&shared, "POST", "/v1/completions",
                          "{" PROMPT ", \"max_tokens\": 40, \"stream\": true}");
    ck_assert_int_eq(r.status, 200);
    ck_assert_ptr_nonnull(strstr(r.text, "text/event-stream"));
    char *text = server_streamed(r.body, false, "length");
    ck_assert_str_eq(text, wanted);
    free(text);
    free(r.text);
    json_decref(alone);
}
END_TEST

START_TEST(chats_have_a_reply)
{
    json_t *json =
        server_post(&shared, 200, "/v1/chat/completions",
                    "{" MESSAGES ", \"temperature\": 0, \"max_completion_tokens\": 30, "
                    "\"user\": \"somebody\", \"n\": 1, \"tools\": [], \"logprobs\": false, "
                    "\"response_format\": {\"type\": \"text\"}}");
    const json_t *message = tool_member(server_choice(json), "message");
    ck_assert_str_eq(tool_text(message, "role"), "assistant");
    const char *text = tool_text(message, "content");
    ck_assert_uint_gt(strlen(text), 10);
    reply r =
        server_call(&shared, "POST", "/v1/chat/completions",
                    "{" MESSAGES ", \"temperature\": 0, \"max_tokens\": 30, \"stream\": true}");
    char *stream = server_streamed(r.body, true, "length");
    ck_assert_str_eq(stream, text);
    /* the content as a list of parts */
    json_t *parts =
        server_post(&shared, 200, "/v1/chat/completions",
                    "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                    "\"text\": \"Tell me \"}, {\"type\": \"text\", \"text\": \"a story.\"}]}], "
                    "\"temperature\": 0, \"max_tokens\": 30}");
    ck_assert_str_eq(tool_text(tool_member(server_choice(parts), "message"), "content"), text);
    json_decref(parts);
    json_decref(json);
    free(stream);
    free(r.text);
}
END_TEST

START_TEST(a_seed_gives_the_same_text)
{
    char *texts[3];
    for (int i = 0; i < 3; i++) {
        json_t *json =
            server_post(&shared, 200, "/v1/completions",
                        "{\"prompt\": \"Once\", \"temperature\": 1, \"max_tokens\": 40%s}",
                        i < 2 ? ", \"seed\": 5" : "");
        texts[i] = strdup(tool_text(server_choice(json), "text"));
        json_decref(json);
    }
    ck_assert_str_eq(texts[0], texts[1]);
    ck_assert_str_ne(texts[0], texts[2]);
    for (int i = 0; i < 3; i++)
        free(texts[i]);
}
END_TEST

START_TEST(stop_strings_end_texts)
{
    char *whole = usual_text(40), *found = strstr(whole, " girl");
    ck_assert_ptr_nonnull(found);
    *found = '\0';
    json_t *json =
        server_post(&shared, 200, "/v1/completions",
                    "{" PROMPT ", \"max_tokens\": 40, \"stop\": [\"never\", \" girl\"]}");
    ck_assert_str_eq(tool_text(server_choice(json), "text"), whole);
    ck_assert_str_eq(tool_text(server_choice(json), "finish_reason"), "stop");
    json_decref(json);
    free(whole);
}
END_TEST

/* Several choices have texts of their own, in whole replies and in streams. */
START_TEST(several_choices_differ)
{
    char *texts[3], body[512];
    snprintf(
        body, sizeof body,
        "{\"prompt\": \"Once\", \"temperature\": 1, \"seed\": 3, \"max_tokens\": 20, \"n\": 3");
    json_t *json = server_post(&shared, 200, "/v1/completions", "%s}", body);
    const json_t *choices = json_object_get(json, "choices");
    ck_assert_uint_eq(json_array_size(choices), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *choice = json_array_get(choices, i);
        ck_assert_double_eq(tool_number(choice, "index"), (double)i);
        texts[i] = strdup(tool_text(choice, "text"));
    }
    ck_assert_str_ne(texts[0], texts[1]);
    ck_assert_str_ne(texts[1], texts[2]);
    ck_assert_double_eq(tool_number(tool_member(json, "usage"), "completion_tokens"), 60);
    json_decref(json);
    strcat(body, ", \"stream\": true}");
    reply r = server_call(&shared, "POST", "/v1/completions", body);
    char got[3][512] = {"", "", ""}, *rest = r.body;
    int ends = 0;
    for (char *line;
         (line = strtok_r(rest, "\n", &rest)) != NULL && strstr(line, "[DONE]") == NULL;) {
        json_t *event = json_loads(line + 6, 0, NULL);
        const json_t *choice = server_choice(event);
        strcat(got[(int)tool_number(choice, "index")], tool_text(choice, "text"));
        ends += json_is_string(tool_member(choice, "finish_reason"));
        json_decref(event);
    }
    ck_assert_int_eq(ends, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_str_eq(got[i], texts[i]);
        free(texts[i]);
    }
    free(r.text);
}
END_TEST

static const json_t *first_of(const json_t *list)
{
    const json_t *first = json_array_get(list, 0);
    ck_assert_ptr_nonnull(first);
    return first;
}

START_TEST(log_probabilities_are_given)
{
    json_t *json = server_post(&shared, 200, "/v1/completions",
                               "{" PROMPT ", \"max_tokens\": 3, \"logprobs\": 2}");
    const json_t *all = tool_member(server_choice(json), "logprobs");
    ck_assert_uint_eq(json_array_size(tool_member(all, "tokens")), 3);
    const double value = json_number_value(first_of(tool_member(all, "token_logprobs")));
    ck_assert(value < 0 && value > -5);
    const json_t *top = first_of(tool_member(all, "top_logprobs"));
    ck_assert_uint_eq(json_object_size(top), 2);
    const char *token = json_string_value(first_of(tool_member(all, "tokens")));
    ck_assert_double_eq(tool_number(top, token), value);
    ck_assert_int_eq(strncmp(tool_text(server_choice(json), "text"), token, strlen(token)), 0);
    json_decref(json);
    for (int stream = 0; stream < 2; stream++) {
        char body[512];
        snprintf(body, sizeof body,
                 "{" MESSAGES ", \"temperature\": 0, \"max_tokens\": 3, \"logprobs\": true, "
                 "\"top_logprobs\": 2, \"stream\": %s}",
                 stream ? "true" : "false");
        reply r = server_call(&shared, "POST", "/v1/chat/completions", body);
        size_t count = 0;
        char *rest = r.body;
        for (char *line;
             (line = strtok_r(rest, "\n", &rest)) != NULL && strstr(line, "[DONE]") == NULL;) {
            json = json_loads(line + (stream ? 6 : 0), 0, NULL);
            const json_t *list =
                json_object_get(tool_member(server_choice(json), "logprobs"), "content");
            count += json_array_size(list);
            if (json_array_size(list) > 0) {
                const json_t *entry = first_of(list),
                             *likely = first_of(tool_member(entry, "top_logprobs"));
                ck_assert_double_eq(tool_number(entry, "logprob"), tool_number(likely, "logprob"));
                ck_assert_str_eq(tool_text(entry, "token"), tool_text(likely, "token"));
                ck_assert_uint_gt(json_array_size(tool_member(entry, "bytes")), 0);
            }
            json_decref(json);
        }
        ck_assert_uint_eq(count, 3);
        free(r.text);
    }
}
END_TEST

START_TEST(biases_and_penalties_change_texts)
{
    /* 263 is the token " a" of this model */
    json_t *json = server_post(&shared, 200, "/v1/completions",
                               "{" PROMPT ", \"max_tokens\": 5, \"logit_bias\": {\"263\": 100}}");
    ck_assert_double_eq(tool_number(tool_member(json, "usage"), "completion_tokens"), 5);
    char *first = strdup(tool_text(server_choice(json), "text"));
    json_decref(json);
    json = server_post(&shared, 200, "/v1/completions",
                       "{" PROMPT ", \"max_tokens\": 5, \"logit_bias\": {\"263\": 100}, "
                       "\"frequency_penalty\": 100}");
    const char *second = tool_text(server_choice(json), "text");
    const size_t each = strlen(first) / 5;
    ck_assert_int_eq(strncmp(first, first + each, strlen(first) - each),
                     0); /* five times the same */
    ck_assert_int_eq(strncmp(first, second, each), 0);
    ck_assert_str_ne(first, second);
    json_decref(json);
    free(first);
}
END_TEST

#define SCHEMA                                                                                     \
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": "     \
    "12}, "                                                                                        \
    "\"kind\": {\"enum\": [\"cat\", \"dog\"]}, \"age\": {\"type\": \"integer\", \"maximum\": 9, "  \
    "\"minimum\": 3}}, \"required\": [\"name\", \"kind\", \"age\"], \"additionalProperties\": "    \
    "false}"

/* Checks JSON of the schema. */
static void check_pet(const char *text)
{
    json_t *pet = json_loads(text, JSON_ALLOW_NUL, NULL);
    ck_assert_msg(json_is_object(pet) && json_object_size(pet) == 3, "%s", text);
    const char *kind = tool_text(pet, "kind");
    const double age = tool_number(pet, "age");
    ck_assert_msg(json_is_string(json_object_get(pet, "name")) &&
                      (strcmp(kind, "cat") == 0 || strcmp(kind, "dog") == 0) && age >= 3 &&
                      age <= 9,
                  "%s", text);
    json_decref(pet);
}

START_TEST(texts_have_the_form_that_is_asked_for)
{
    static const char format[] =
        "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"pet\", "
        "\"strict\": true, \"schema\": " SCHEMA "}}";
    json_t *json = server_post(&shared, 200, "/v1/chat/completions",
                               "{" MESSAGES ", \"seed\": 0, %s}", format);
    ck_assert_str_eq(tool_text(server_choice(json), "finish_reason"), "stop");
    check_pet(tool_text(tool_member(server_choice(json), "message"), "content"));
    json_decref(json);
    char body[2048];
    snprintf(body, sizeof body, "{" MESSAGES ", \"seed\": 1, \"stream\": true, %s}", format);
    reply r = server_call(&shared, "POST", "/v1/chat/completions", body);
    char *streamed = server_streamed(r.body, true, "stop");
    check_pet(streamed);
    free(streamed);
    free(r.text);
    json =
        server_post(&shared, 200, "/v1/completions",
                    "{" PROMPT ", \"grammar\": \"root ::= \\\" the \\\" [a-c]{3} | \\\"x\\\"\"}");
    const char *text = tool_text(server_choice(json), "text");
    ck_assert_msg(strcmp(text, "x") == 0 || (strncmp(text, " the ", 5) == 0 &&
                                             strspn(text + 5, "abc") == 3 && strlen(text) == 8),
                  "%s", text);
    json_decref(json);
    json = server_post(&shared, 200, "/v1/completions",
                       "{" PROMPT
                       ", \"response_format\": {\"type\": \"json_object\"}, \"max_tokens\": 20}");
    text = tool_text(server_choice(json), "text");
    ck_assert_msg(text[0] == '{', "%s", text);
    json_decref(json);
    /* A grammar that becomes too ambiguous fails its own request only. */
    json = server_post(
        &shared, 400, "/v1/completions",
        "{" PROMPT
        ", \"grammar\": \"root ::= \\\"a\\\" root \\\"b\\\" | \\\"a\\\" root \\\"c\\\"\", "
        "\"max_tokens\": 100}");
    ck_assert_ptr_nonnull(strstr(tool_text(tool_member(json, "error"), "message"),
                                 "no token of the model can continue the text by its grammar"));
    json_decref(json);
}
END_TEST

START_TEST(tokens_go_both_ways)
{
    json_t *json = server_post(&shared, 200, "/tokenize",
                               "{\"content\": \"Once upon a time\", \"add_special\": true}"),
           *tokens = json_object_get(json, "tokens");
    static const int wanted[] = {1, 403, 407, 261, 378};
    ck_assert_uint_eq(json_array_size(tokens), 5);
    for (size_t i = 0; i < 5; i++)
        ck_assert_int_eq((int)json_integer_value(json_array_get(tokens, i)), wanted[i]);
    json_decref(json);
    json = server_post(&shared, 200, "/detokenize", "{\"tokens\": [403, 407, 261, 378]}");
    ck_assert_ptr_nonnull(strstr(tool_text(json, "content"), "Once upon a time"));
    json_decref(json);
}
END_TEST

START_TEST(large_bodies_are_refused)
{
    const size_t size = (16 << 20) + 1;
    char *body = malloc(size + 1);
    ck_assert_ptr_nonnull(body);
    memset(body, ' ', size);
    body[size] = '\0';
    reply r = server_call(&shared, "POST", "/v1/completions", body);
    ck_assert_int_eq(r.status, 413);
    ck_assert_ptr_nonnull(strstr(r.body, "the body is larger than 16 MiB"));
    free(r.text);
    /* No body is kept for a GET, so its size does not matter. */
    r = server_call(&shared, "GET", "/health", body);
    ck_assert_int_eq(r.status, 200);
    free(r.text);
    free(body);
}
END_TEST

/* Several clients ------------------------------------------------------------------------------ */

/* Two texts run, and one request waits; a fourth one is refused. */
START_TEST(a_full_queue_refuses)
{
    char *wanted = usual_text(20);
    int clients[3];
    reply r;
    for (int i = 0; i < 3; i++) {
        clients[i] = server_ask(&shared, "POST", "/v1/completions", "",
                                i < 2 ? "{" PROMPT ", \"max_tokens\": 300}"
                                      : "{" PROMPT ", \"max_tokens\": 20}");
        server_await(&shared, i < 2 ? "requests_running" : "requests_waiting", i < 2 ? i + 1 : 1);
    }
    json_t *json = server_post(&shared, 429, "/v1/completions", "{" PROMPT "}");
    ck_assert_str_eq(tool_text(tool_member(json, "error"), "type"), "rate_limit_error");
    json_decref(json);
    for (int i = 0; i < 3; i++) {
        r = server_hear(clients[i]);
        ck_assert_int_eq(r.status, 200);
        json = json_loads(r.body, 0, NULL);
        const char *text = tool_text(server_choice(json), "text");
        ck_assert_int_eq(strncmp(text, wanted, strlen(wanted)), 0);
        ck_assert(i == 2 ? strlen(text) == strlen(wanted) : strlen(text) > strlen(wanted));
        json_decref(json);
        free(r.text);
    }
    free(wanted);
}
END_TEST

/* A request of four texts, two of which run, is no waiting one: another one may wait. */
START_TEST(several_texts_are_one_request)
{
    int clients[2];
    for (int i = 0; i < 2; i++) {
        clients[i] = server_ask(&shared, "POST", "/v1/completions", "",
                                i == 0 ? "{" PROMPT ", \"max_tokens\": 120, \"n\": 4}"
                                       : "{" PROMPT ", \"max_tokens\": 5, \"n\": 3}");
        server_await(&shared, "requests_waiting", i == 0 ? 2 : 4);
    }
    json_t *json = server_post(&shared, 429, "/v1/completions", "{" PROMPT "}");
    ck_assert_str_eq(tool_text(tool_member(json, "error"), "message"),
                     "1 request is already waiting; try again later");
    json_decref(json);
    for (int i = 0; i < 2; i++) {
        reply r = server_hear(clients[i]);
        ck_assert_int_eq(r.status, 200);
        free(r.text);
    }
}
END_TEST

/* A request of sixteen long texts, two of which run at a time, does not keep another one waiting
 * until most of them have been generated. */
START_TEST(requests_get_texts_in_turn)
{
    const double before = server_metric(&shared, "generated_tokens_total"),
                 cancelled = server_metric(&shared, "requests_cancelled_total");
    const int many = server_ask(&shared, "POST", "/v1/completions", "",
                                "{" PROMPT ", \"max_tokens\": 150, \"n\": 16}");
    server_await(&shared, "requests_waiting", 14);
    json_t *json = server_post(&shared, 200, "/v1/completions", "{" PROMPT ", \"max_tokens\": 2}");
    json_decref(json);
    ck_assert_double_lt(server_metric(&shared, "generated_tokens_total"), before + 8 * 150);
    close(many);
    server_await(&shared, "requests_cancelled_total", cancelled + 1);
}
END_TEST

/* Clients that go away, with and without a stream, while running and while waiting. */
START_TEST(texts_of_absent_clients_end)
{
    static const char *const bodies[] = {"{" PROMPT ", \"max_tokens\": 500}",
                                         "{" PROMPT ", \"max_tokens\": 500, \"stream\": true}"};
    const double before = server_metric(&shared, "requests_cancelled_total");
    int clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = server_ask(&shared, "POST", "/v1/completions", "", bodies[i % 2]);
        server_await(&shared, i < 2 ? "requests_running" : "requests_waiting", i < 2 ? i + 1 : 1);
    }
    for (int i = 2; i >= 0; i--)
        close(clients[i]);
    server_await(&shared, "requests_cancelled_total", before + 3);
    ck_assert_double_eq(server_metric(&shared, "requests_running"), 0);
    json_t *json = server_post(&shared, 200, "/v1/completions", "{" PROMPT ", \"max_tokens\": 4}");
    json_decref(json);
}
END_TEST

/* Writes a list of token ids that begins with 1. */
static void write_ids(char *out, int count)
{
    out += sprintf(out, "1");
    for (int i = 1; i < count; i++)
        out += sprintf(out, ",%d", 270 + i * 7 % 200);
}

static double cached_tokens(const json_t *reply_document)
{
    const json_t *usage = tool_member(reply_document, "usage");
    return tool_number(tool_member(usage, "prompt_tokens_details"), "cached_tokens");
}

/* A prompt costs only the pieces in which it differs from earlier ones. */
START_TEST(prompts_are_found_again)
{
    static const struct {
        int ids, cached;
    } cases[] = {{110, 0}, {110, 96}, {96, 64}, {200, 96}, {200, 192}};
    char ids[2048], *text = NULL;
    const double before = server_metric(&shared, "prompt_tokens_cached_total");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_ids(ids, cases[i].ids);
        json_t *json =
            server_post(&shared, 200, "/v1/completions",
                        "{\"prompt\": [%s], \"temperature\": 0, \"max_tokens\": 8}", ids);
        ck_assert_double_eq(cached_tokens(json), cases[i].cached);
        if (i % 3 == 1)
            ck_assert_str_eq(tool_text(server_choice(json), "text"), text);
        free(text);
        text = strdup(tool_text(server_choice(json), "text"));
        json_decref(json);
    }
    free(text);
    ck_assert_double_eq(server_metric(&shared, "prompt_tokens_cached_total"),
                        before + 96 + 64 + 96 + 192);
    ck_assert_double_ge(server_metric(&shared, "cache_pages_prefix"), 6);
    ck_assert_double_eq(server_metric(&shared, "prompt_piece_tokens"), 32);
    ck_assert_double_eq(server_metric(&shared, "prompt_piece_tokens_max"), 32);
}
END_TEST

#if TEST_HAVE_BENCH
START_TEST(benchmarks_measure_servers)
{
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "bench serve http://127.0.0.1:%d/v1 --streams 1,2 --tokens 6 --prompt-words 60 "
             "--rounds 1 --json",
             shared.port);
    json_t *json = tool_json(arguments, "tessera.bench.serve");
    const json_t *one = json_array_get(tool_member(json, "servers"), 0);
    ck_assert_str_eq(tool_text(one, "model"), "stories");
    ck_assert_uint_eq(json_array_size(tool_member(one, "streams")), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(tool_member(one, "streams"), i);
        ck_assert_double_eq(tool_number(row, "streams"), (double)i + 1);
        ck_assert_double_gt(tool_number(row, "tokens_per_second"), 0);
        ck_assert_double_gt(tool_number(row, "first_s"), 0);
    }
    ck_assert_double_gt(tool_number(one, "long_prompt_tokens"), 60);
    static const char *const times[] = {"long_prompt_s", "next_turn_s", "short_alone_s",
                                        "short_beside_s"};
    for (size_t i = 0; i < 4; i++)
        ck_assert_double_gt(tool_number(one, times[i]), 0);
    json_decref(json);
    snprintf(arguments, sizeof arguments,
             "bench serve http://127.0.0.1:%d --streams 1 --tokens 3 --prompt-words 2000",
             shared.port);
    tool_fails(arguments, "/v1/completions: status 400: the prompt has ");
    tool_refuses("bench serve",
                 "tessera: bench serve: missing URL, such as http://127.0.0.1:8080\n");
    tool_refuses("bench serve ftp://x",
                 "tessera: bench serve: 'ftp://x' is not a URL such as http://127.0.0.1:8080\n");
    tool_refuses("bench serve http://x --streams 1,0",
                 "tessera: bench serve: --streams takes up to 16 numbers from 1 to 1024, such as "
                 "1,4,16, not '1,0'\n");
    tool_fails("bench serve http://127.0.0.1:1", "/v1/models: cannot connect");
}
END_TEST
#endif

START_TEST(health_and_models_are_told)
{
    reply r = server_call(&shared, "GET", "/health", "");
    ck_assert_int_eq(r.status, 200);
    ck_assert_ptr_nonnull(strstr(r.body, "{\"status\":\"ok\",\"ranks\":1,\"wanted_ranks\":1,"));
    free(r.text);
    r = server_call(&shared, "GET", "/ranks", "");
    json_t *json = json_loads(r.body, 0, NULL);
    const json_t *rank = json_array_get(tool_member(json, "ranks"), 0);
    ck_assert_int_gt(json_integer_value(tool_member(rank, "weight_bytes")), 0);
    ck_assert_int_gt(json_integer_value(tool_member(rank, "memory_bytes")),
                     json_integer_value(tool_member(rank, "weight_bytes")));
    ck_assert_str_ne(tool_text(rank, "device"), "");
    ck_assert_uint_eq(json_array_size(tool_member(json, "incidents")), 0);
    json_decref(json);
    free(r.text);
    r = server_call(&shared, "GET", "/", "");
    ck_assert_int_eq(r.status, 200);
    ck_assert_ptr_nonnull(
        strstr(r.text, "Content-Security-Policy: default-src 'none'; script-src 'nonce-"));
    ck_assert_ptr_nonnull(strstr(r.body, "<!DOCTYPE html>"));
    ck_assert_ptr_null(strstr(r.body, "@NONCE@"));
    free(r.text);
    r = server_call(&shared, "GET", "/v1/models", "");
    ck_assert_ptr_nonnull(strstr(r.body, "\"id\":\"stories\""));
    free(r.text);
    r = server_call(&shared, "GET", "/v1/models/stories", "");
    ck_assert_int_eq(r.status, 200);
    ck_assert_ptr_nonnull(strstr(r.body, "{\"id\":\"stories\",\"object\":\"model\""));
    free(r.text);
    r = server_call(&shared, "GET", "/v1/models/other", "");
    ck_assert_int_eq(r.status, 404);
    ck_assert_ptr_nonnull(strstr(r.body, "there is no model 'other'"));
    free(r.text);
    r = server_call(&shared, "GET", "/v1/models/", "");
    ck_assert_int_eq(r.status, 404);
    ck_assert_ptr_nonnull(strstr(r.body, "there is no path '/v1/models/'"));
    free(r.text);
    r = server_call(&shared, "HEAD", "/v1/models", "");
    ck_assert_int_eq(r.status, 200);
    ck_assert_str_eq(r.body, "");
    free(r.text);
}
END_TEST

/* Servers of their own ------------------------------------------------------------------------- */

/* Returns a socket on which the next server tells systemd its states. */
static int begin_notices(struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "/tmp/tessera-notify-%d", (int)getpid());
    const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    ck_assert(fd >= 0 && bind(fd, (const struct sockaddr *)address, sizeof *address) == 0);
    setenv("NOTIFY_SOCKET", address->sun_path, 1);
    return fd;
}

static void check_notice(int fd, const char *wanted)
{
    char text[64];
    const ssize_t size = recv(fd, text, sizeof text - 1, 0);
    ck_assert_int_gt(size, 0);
    text[size] = '\0';
    ck_assert_str_eq(text, wanted);
}

/* Who has no key is refused; systemd learns that the server is ready, and that it ends. */
START_TEST(keys_are_needed)
{
    static const struct {
        const char *path, *headers;
        int status;
    } cases[] = {
        {"/v1/models", "", 401},
        {"/v1/models", "Authorization: Bearer secre\r\n", 401},
        {"/v1/models", "Authorization: Bearer secret5\r\n", 401},
        {"/v1/models", "Authorization: secret\r\n", 401},
        {"/v1/models", "Authorization: Bearer secret\r\n", 200},
        {"/v1/models", "Authorization: bearer secret\r\n", 200},
        {"/metrics", "", 401},
        {"/health", "", 200},
        {"/nowhere", "", 404},
    };
    char path[] = "/tmp/tessera-serve-XXXXXX", arguments[512];
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, "secret\nmore\n", 12), 12);
    close(fd);
    snprintf(arguments, sizeof arguments, SERVE "--api-key-file %s", path);
    struct sockaddr_un address;
    const int notices = begin_notices(&address);
    server s = server_start(arguments);
    unsetenv("NOTIFY_SOCKET");
    check_notice(notices, "READY=1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reply r = server_hear(server_ask(&s, "GET", cases[i].path, cases[i].headers, ""));
        ck_assert_int_eq(r.status, cases[i].status);
        free(r.text);
    }
    server_stop(&s);
    check_notice(notices, "STOPPING=1");
    close(notices);
    unlink(address.sun_path);
    unlink(path);
}
END_TEST

/* After a signal, running texts may be completed, and the other ones of their request. Ends the
 * server, which computes three texts at a time. Each must begin as `wanted` does. */
static void check_signal(server *s, const char *wanted)
{
    enum { TEXTS = 4 };
    const int client =
        server_ask(s, "POST", "/v1/completions", "", "{" PROMPT ", \"max_tokens\": 40, \"n\": 4}");
    server_await(s, "requests_running", 1);
    ck_assert_int_eq(kill(s->pid, SIGTERM), 0);
    reply r = server_hear(client);
    json_t *json = json_loads(r.body, 0, NULL);
    for (size_t i = 0; i < TEXTS; i++) {
        const json_t *choice = json_array_get(json_object_get(json, "choices"), i);
        const char *text = tool_text(choice, "text");
        ck_assert_str_eq(tool_text(choice, "finish_reason"), "length");
        ck_assert_uint_gt(strlen(text), 0);
        ck_assert_int_eq(strncmp(text, wanted, strlen(text)), 0);
    }
    json_decref(json);
    free(r.text);
    server_stop(s);
}

/* A client that goes away gives up its place in the queue, although the texts before it go on. */
static void check_absent_clients(const server *s)
{
    int clients[2];
    for (int i = 0; i < 2; i++) {
        clients[i] = server_ask(s, "POST", "/v1/completions", "",
                                "{" PROMPT ", \"max_tokens\": 500, \"n\": 128}");
        server_await(s, "requests_total", i + 1);
    }
    close(clients[1]);
    server_await(s, "requests_cancelled_total", 1);
    ck_assert_double_ge(server_metric(s, "requests_waiting"), 1);
    ck_assert_double_lt(server_metric(s, "requests_waiting"), 128);
    close(clients[0]);
    server_await(s, "requests_cancelled_total", 2);
    ck_assert_double_eq(server_metric(s, "requests_waiting"), 0);
}

/* Ends a server without a grace while it computes a text, which fails. */
static void check_end_of_grace(server *s)
{
    const int client =
        server_ask(s, "POST", "/v1/completions", "", "{" PROMPT ", \"max_tokens\": 500}");
    server_await(s, "requests_running", 1);
    ck_assert_int_eq(kill(s->pid, SIGTERM), 0);
    reply r = server_hear(client);
    ck_assert_msg(r.status == 503 && strstr(r.body, "the server shuts down") != NULL, "%s", r.text);
    free(r.text);
    server_stop(s);
}

/* A model one of whose weights is NaN: each request fails by itself, if possible on two ranks. */
START_TEST(nan_ends_texts_only)
{
    char path[] = "/tmp/tessera-XXXXXX", arguments[200], text[2048];
    FILE *from = fopen(MODEL, "rb"), *to = fdopen(mkstemp(path), "wb");
    ck_assert(from != NULL && to != NULL);
    for (size_t size; (size = fread(text, 1, sizeof text, from)) > 0;)
        ck_assert_uint_eq(fwrite(text, 1, size, to), size);
    const long middle = ftell(from) / 2 / 64 * 64;
    fclose(from);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 == 0 ? 0 : 0x7e; /* NaN in f16 */
    ck_assert(fseek(to, middle, SEEK_SET) == 0 && fwrite(text, 1, 64, to) == 64 && fclose(to) == 0);
    int status = 0;
    snprintf(arguments, sizeof arguments, "%sserve %s --port 0 --parallel 2",
             TEST_HAVE_UCX ? "launch -n 2 --no-prefix -- " TEST_TOOL " " : "", path);
    server s = server_start(arguments);
    for (int i = 0; i < 2; i++) {
        json_t *json = server_post(&s, 503, "/v1/completions", "{" PROMPT ", \"max_tokens\": 20}");
        const char *message = tool_text(tool_member(json, "error"), "message");
        ck_assert_msg(strstr(message, "is NaN") != NULL, "%s", message);
        json_decref(json);
    }
    ck_assert_int_eq(kill(s.pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(s.pid, &status, 0), s.pid);
    rewind(s.err);
    text[fread(text, 1, sizeof text - 1, s.err)] = '\0';
    ck_assert_msg(strstr(text, "serve: the model cannot go on") != NULL, "%s", text);
    fclose(s.err);
    fclose(s.out);
    unlink(path);
}
END_TEST

/* Three texts of 95 tokens in a cache for 128. At last, a signal lets such texts end. */
START_TEST(texts_wait_for_pages)
{
    char *wanted = usual_text(90);
    int clients[3];
    server s = server_start(SERVE "--parallel 3 --context 512 --cache-tokens 128");
    for (int i = 0; i < 3; i++)
        clients[i] =
            server_ask(&s, "POST", "/v1/completions", "", "{" PROMPT ", \"max_tokens\": 90}");
    for (int i = 0; i < 3; i++) {
        reply r = server_hear(clients[i]);
        json_t *json = json_loads(r.body, 0, NULL);
        ck_assert_str_eq(tool_text(server_choice(json), "text"), wanted);
        json_decref(json);
        free(r.text);
    }
    ck_assert_double_ge(server_metric(&s, "preemptions_total"), 1);
    ck_assert_double_eq(server_metric(&s, "cache_pages"), 2);
    json_t *json = server_post(&s, 200, "/v1/completions", "{" PROMPT ", \"max_tokens\": 500}");
    ck_assert_str_eq(tool_text(server_choice(json), "finish_reason"), "length");
    ck_assert_double_eq(tool_number(tool_member(json, "usage"), "completion_tokens"), 124);
    json_decref(json);
    check_signal(&s, wanted);
    free(wanted);
}
END_TEST

/* A client that goes on to send a byte now and then is disconnected, while headers are read and
 * while a body is. */
static void check_slow_sender(const server *s)
{
    static const char *const heads[] = {
        "GET /health HTTP/1.1\r\nX: ", "POST /tokenize HTTP/1.0\r\nContent-Length: 100000\r\n\r\n"};
    for (int i = 0; i < 2; i++) {
        struct pollfd one = {.fd = server_dial(s), .events = POLLIN};
        server_put(one.fd, heads[i], strlen(heads[i]));
        char byte;
        while (poll(&one, 1, 50) == 0) /* the test's time is limited */
            (void)!send(one.fd, "a", 1, MSG_NOSIGNAL);
        ck_assert_int_le((int)recv(one.fd, &byte, 1, 0), 0);
        close(one.fd);
    }
    ck_assert_double_eq(server_metric(s, "slow_senders_total"), 2);
}

START_TEST(deadlines_end_requests)
{
    server s = server_start(
        SERVE "--parallel 1 --context 512 --deadline 0.05 --no-prefix-cache --send-time 1");
    int clients[2];
    static const char *const wanted[] = {"the text took longer than 0.05 s, with ",
                                         "the request waited longer than 0.05 s"};
    clients[0] = server_ask(&s, "POST", "/v1/completions", "", "{" PROMPT ", \"max_tokens\": 500}");
    server_await(&s, "requests_running", 1);
    clients[1] = server_ask(&s, "POST", "/v1/completions", "", "{" PROMPT ", \"max_tokens\": 500}");
    for (int i = 0; i < 2; i++) {
        reply r = server_hear(clients[i]);
        ck_assert_msg(r.status == 503, "%s", r.text);
        ck_assert_msg(strstr(r.body, wanted[0]) != NULL || strstr(r.body, wanted[i]) != NULL, "%s",
                      r.text);
        free(r.text);
    }
    ck_assert_double_eq(server_metric(&s, "requests_failed_total"), 2);
    check_slow_sender(&s);
    server_stop(&s);
}
END_TEST

/* Requests choose adapters by `model` or `lora`, and get what `generate --lora` writes. */
static void check_adapters(const server *s, const char *folder, const char *base)
{
    static const struct {
        const char *members, *model, *scale;
    } cases[] = {{"\"model\": \"stories\", \"lora\": \"half\",", "half", ":0.5"},
                 {"\"model\": \"pets\",", "pets", ""},
                 {"\"model\": \"pets\", \"lora\": \"pets\",", "pets", NULL}}; /* the same text */
    static const struct {
        int status;
        const char *members, *sentence;
    } wrong[] = {{404, "\"model\": \"cats\",", "the model is 'stories', not 'cats'"},
                 {404, "\"lora\": \"cats\",", "the model 'stories' has no adapter 'cats'"},
                 {400, "\"lora\": 1,", "the model 'stories' has no adapter '(not a string)'"},
                 {400, "\"model\": \"pets\", \"lora\": \"half\",",
                  "model and lora name two adapters, 'pets' and 'half'"}};
    json_t *wanted = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].scale != NULL) {
            char arguments[512];
            json_decref(wanted);
            snprintf(arguments, sizeof arguments,
                     "generate " MODEL " --lora %s%s --greedy --json -n 40 --ids 1,403,407,261,378",
                     folder, cases[i].scale);
            wanted = tool_json(arguments, "tessera.generate");
        }
        json_t *json = server_post(s, 200, "/v1/completions", "{%s " PROMPT ", \"max_tokens\": 40}",
                                   cases[i].members);
        ck_assert_str_eq(tool_text(server_choice(json), "text"),
                         tool_text(wanted, "generated_text"));
        ck_assert_str_ne(tool_text(server_choice(json), "text"), base);
        ck_assert_str_eq(tool_text(json, "model"), cases[i].model);
        json_decref(json);
    }
    json_decref(wanted);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *json =
            server_post(s, wrong[i].status, "/v1/completions", "{%s " PROMPT "}", wrong[i].members);
        ck_assert_str_eq(tool_text(tool_member(json, "error"), "message"), wrong[i].sentence);
        json_decref(json);
    }
    reply r = server_call(s, "GET", "/v1/models", "");
    ck_assert_ptr_nonnull(strstr(r.body, "\"id\":\"stories\""));
    ck_assert_ptr_nonnull(strstr(r.body, "\"id\":\"pets\""));
    ck_assert_ptr_nonnull(strstr(r.body, "\"id\":\"half\""));
    ck_assert_ptr_nonnull(strstr(r.body, "\"parent\":\"stories\""));
    free(r.text);
}

START_TEST(ranks_serve_together)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    char *wanted = usual_text(40), folder[] = "/tmp/tessera-adapter-XXXXXX", command[512];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    server_write_adapter(folder);
    snprintf(command, sizeof command,
             "launch -n 2 -- " TEST_TOOL " " SERVE "--parallel 2 --lora pets=%s --lora half=%s:0.5",
             folder, folder);
    server s = server_start(command);
    json_t *json = server_post(&s, 200, "/v1/completions", "{" PROMPT ", \"max_tokens\": 40}");
    ck_assert_str_eq(tool_text(server_choice(json), "text"), wanted);
    json_decref(json);
    json = server_post(&s, 200, "/v1/completions",
                       "{" PROMPT ", \"grammar\": \"root ::= [x-z]{2} | \\\"yes\\\"\"}");
    const char *text = tool_text(server_choice(json), "text");
    ck_assert_msg(strcmp(text, "yes") == 0 || (strspn(text, "xyz") == 2 && strlen(text) == 2), "%s",
                  text);
    json_decref(json);
    ck_assert_double_eq(server_metric(&s, "ranks"), 2);
    check_adapters(&s, folder, wanted);
    server_stop(&s);
    tests_remove(folder);
    free(wanted);
}
END_TEST

/* Links a file of the test data into a folder. */
static void link_file(const char *folder, const char *name, const char *file)
{
    char path[256], target[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(target, sizeof target, "%s/%s", TEST_DATA, file);
    ck_assert_int_eq(symlink(target, path), 0);
}

/* Requests cannot choose adapters of the head or of experts, so the server does not start with one.
 */
static void check_refused_adapter(const char *model, const char *header, uint64_t bytes,
                                  const char *config, const char *what)
{
    char folder[] = "/tmp/tessera-head-XXXXXX", path[128], file_name[128], command[512];
    static const float values[192];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file_name, sizeof file_name, "%s/config.json", model);
    link_file(folder, "config.json", file_name);
    snprintf(file_name, sizeof file_name, "%s/model.safetensors", model);
    link_file(folder, "model.safetensors", file_name);
    link_file(folder, "tokenizer.json", "tokenizer/mini-gpt2.tokenizer.json");
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    FILE *file = fopen(path, "w");
    ck_assert(file &&
              fprintf(file, "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1%s}", config) >
                  0 &&
              fclose(file) == 0);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)strlen(header) >> (8 * i) & 255), file);
    ck_assert(fputs(header, file) >= 0 && fwrite(values, bytes, 1, file) == 1);
    ck_assert_int_eq(fclose(file), 0);
    snprintf(command, sizeof command, "serve %s --port 0 --lora a=%s", folder, folder);
    tool_fails(command, what);
    tests_remove(folder);
}

static void check_refused_adapters(void)
{
    check_refused_adapter(
        "training/lora/lora_base",
        "{\"base_model.model.lm_head.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,64],"
        "\"data_offsets\":[0,256]},\"base_model.model.lm_head.lora_B.weight\":{\"dtype\":\"F32\","
        "\"shape\":[65,1],\"data_offsets\":[256,516]}}",
        516, "", ": it changes the head, which requests cannot choose; tessera merge adds it\n");
#define SHARED "base_model.model.model.layers.0.mlp.shared_expert.gate_proj.lora_"
    check_refused_adapter(
        "model/families/qwen2moe/hf",
        "{\"" SHARED "A.weight\":{\"dtype\":\"F32\",\"shape\":[1,64],\"data_offsets\":[0,256]},"
        "\"" SHARED "B.weight\":{\"dtype\":\"F32\",\"shape\":[48,1],\"data_offsets\":[256,448]},"
        "\"__metadata__\":{\"rest\":\"none\"}}",
        448, "", ": it changes experts, which requests cannot choose; tessera merge adds it\n");
#define QUERY "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    check_refused_adapter(
        "training/lora/lora_base",
        "{\"" QUERY "A.weight\":{\"dtype\":\"F32\",\"shape\":[1,64],\"data_offsets\":[0,256]},"
        "\"" QUERY "B.weight\":{\"dtype\":\"F32\",\"shape\":[64,1],\"data_offsets\":[256,512]},"
        "\"" QUERY
        "magnitude_vector\":{\"dtype\":\"F32\",\"shape\":[64],\"data_offsets\":[512,768]}}",
        768, ", \"use_dora\": true",
        ": it has magnitudes (DoRA), so requests cannot choose it; tessera merge adds it\n");
}

/* Bodies that wait for a reader are limited, and are not read any more after a signal. */
START_TEST(bodies_that_wait_are_limited)
{
    enum { BODIES = 20, MOST = 64, BYTES = 1 << 18 };
    static char body[BYTES + 32];
    int clients[MOST], count_200 = 0, count_429 = 0, count_503 = 0;
    server s = server_start(SERVE "--parallel 1 --queue 8");
    strcpy(body, "{\"content\": \"");
    memset(body + strlen(body), 'a', BYTES);
    strcat(body, "\"}");
    /* The server has accepted a connection, which it would otherwise reset when it ends, if it
     * answers on a later one; and some bodies must have come while others are read. */
    int count = 0;
    for (bool refused = false; count < BODIES || !refused; count++) {
        ck_assert_int_lt(count, MOST);
        clients[count] = server_ask(&s, "POST", "/tokenize", "", body);
        refused = count + 1 >= BODIES && server_metric(&s, "requests_refused_total") > 0;
    }
    kill(s.pid, SIGTERM);
    for (int i = 0; i < count; i++) {
        reply r = server_hear(clients[i]);
        count_200 += r.status == 200;
        count_503 += r.status == 503;
        count_429 += r.status == 429 && strstr(r.text, "Retry-After: 1") != NULL &&
                     strstr(r.body, "the bodies of 13 requests are being read already") != NULL;
        free(r.text);
    }
    ck_assert_msg(count_200 > 0 && count_429 > 0 && count_503 > 0 &&
                      count_200 + count_429 + count_503 == count,
                  "%d, %d, %d", count_200, count_429, count_503);
    server_stop(&s);
}
END_TEST

/* Neither clients that go away nor those that are slow hold up others: bodies that are being
 * received are limited, so that they cannot fill the memory. The server has no grace. */
START_TEST(absent_and_slow_clients_are_limited)
{
    enum { CLIENTS = 17, BYTES = (1 << 20) - 1 };
    static char body[BYTES];
    static const char head[] = "POST /tokenize HTTP/1.0\r\nContent-Length: 1048576\r\n\r\n";
    int clients[CLIENTS];
    server s =
        server_start(SERVE "--body-limit 1 --parallel 1 --context 512 --queue 200 --grace 0");
    check_absent_clients(&s);
    memset(body, 'a', BYTES);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = server_dial(&s);
        server_put(clients[i], head, strlen(head));
        server_put(clients[i], body, BYTES);
        if (i + 1 < CLIENTS)
            server_await(&s, "request_body_bytes", (i + 1) * (double)BYTES);
    }
    server_put(clients[CLIENTS - 1], "a", 1);
    reply r = server_hear(clients[CLIENTS - 1]);
    ck_assert_msg(r.status == 429 && strstr(r.text, "Retry-After: 1") != NULL &&
                      strstr(r.body, "the bodies of all requests would exceed 16 MiB") != NULL,
                  "%s", r.text);
    free(r.text);
    ck_assert_double_eq(server_metric(&s, "request_body_bytes"), 16 * (double)BYTES);
    /* A client that goes makes room, and so does a body that is read: it is no JSON. */
    server_put(clients[0], "a", 1);
    r = server_hear(clients[0]);
    ck_assert_int_eq(r.status, 400);
    free(r.text);
    for (int i = 1; i + 1 < CLIENTS; i++)
        close(clients[i]);
    while (server_metric(&s, "request_body_bytes") > 0) /* the test's time is limited */
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    json_decref(server_post(&s, 200, "/tokenize", "{\"content\": \"a\"}"));
    check_end_of_grace(&s);
}
END_TEST

START_TEST(mistakes_are_named)
{
    check_refused_adapters();
    tool_refuses("serve x --lora y",
                 "tessera: serve: --lora takes NAME=PATH, and perhaps :SCALE, not 'y'\n");
    tool_refuses("serve x --lora =y",
                 "tessera: serve: --lora takes NAME=PATH, and perhaps :SCALE, not '=y'\n");
    tool_refuses("serve x --lora a=y --lora a=z",
                 "tessera: serve: --lora has two adapters called 'a'\n");
    tool_refuses("serve x --lora x=y",
                 "tessera: serve: --lora x=…: the name is that of the model\n");
    tool_refuses("serve x --lora a\xff=y",
                 "tessera: serve: --lora a\\xff=…: the name is not UTF-8\n");
    tool_fails("serve " MODEL " --port 0 --lora a=/proc/nowhere",
               "tessera: serve: --lora /proc/nowhere: ");
    tool_refuses("serve", "tessera: serve: missing MODEL, a folder or a file\n");
    tool_refuses("serve x --api-key-file k --no-api-key",
                 "tessera: serve: --api-key-file and --no-api-key contradict each other\n");
    tool_refuses("serve x --name a\xff",
                 "tessera: serve: the model's name 'a\\xff' is not UTF-8; --name gives another\n");
    tool_refuses("serve x --tls-key k",
                 "tessera: serve: --tls-cert is missing, which --tls-key needs\n");
    tool_fails("serve " MODEL " --port 0 --tls-cert /proc/nowhere --tls-key /proc/nowhere",
               "cannot read the certificate /proc/nowhere: No such file or directory");
    tool_fails("serve " MODEL " --port 0 --tls-cert /dev/null --tls-key /proc/nowhere",
               "cannot read the key /proc/nowhere: No such file or directory");
    tool_fails("serve " MODEL " --port 0 --tls-cert /dev/null --tls-key /dev/null",
               "port 0, with this certificate and key: ");
    tool_refuses("serve x --piece 100",
                 "tessera: serve: --piece is 100; it must be a multiple of 64, or less\n");
    tool_refuses("serve x --parallel 0", "tessera: serve: --parallel takes an integer from 1 to "
                                         "4096, not '0'\n");
    tool_fails("serve " MODEL " --host 0.0.0.0 --port 0",
               "others can reach 0.0.0.0: --api-key-file names the key that they need, and "
               "--no-api-key lets everybody in");
    tool_fails("serve " MODEL " --api-key-file /proc/nowhere",
               "cannot read the API key from /proc/nowhere: No such file or directory");
    tool_fails("serve " MODEL " --api-key-file /dev/null",
               "cannot read the API key from /dev/null: the file is empty");
    tool_fails("serve /proc/nowhere --port 0",
               "tessera: serve: cannot open /proc/nowhere: No such file or directory");
}
END_TEST

TESTS(serve)
{
    tcase_set_timeout(tests, 300);
    tcase_add_unchecked_fixture(tests, start_shared, stop_shared);
    tcase_add_test(tests, texts_are_those_of_generate);
    tcase_add_test(tests, chats_have_a_reply);
    tcase_add_test(tests, a_seed_gives_the_same_text);
    tcase_add_test(tests, stop_strings_end_texts);
    tcase_add_test(tests, several_choices_differ);
    tcase_add_test(tests, log_probabilities_are_given);
    tcase_add_test(tests, biases_and_penalties_change_texts);
    tcase_add_test(tests, texts_have_the_form_that_is_asked_for);
    tcase_add_test(tests, tokens_go_both_ways);
    tcase_add_test(tests, large_bodies_are_refused);
    tcase_add_test(tests, a_full_queue_refuses);
    tcase_add_test(tests, several_texts_are_one_request);
    tcase_add_test(tests, requests_get_texts_in_turn);
    tcase_add_test(tests, texts_of_absent_clients_end);
    tcase_add_test(tests, prompts_are_found_again);
#if TEST_HAVE_BENCH
    tcase_add_test(tests, benchmarks_measure_servers);
#endif
    tcase_add_test(tests, health_and_models_are_told);
    tcase_add_test(tests, keys_are_needed);
    tcase_add_test(tests, nan_ends_texts_only);
    tcase_add_test(tests, texts_wait_for_pages);
    tcase_add_test(tests, deadlines_end_requests);
    tcase_add_test(tests, ranks_serve_together);
    tcase_add_test(tests, bodies_that_wait_are_limited);
    tcase_add_test(tests, absent_and_slow_clients_are_limited);
    tcase_add_test(tests, mistakes_are_named);
}
