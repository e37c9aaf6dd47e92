/* tessera chat: conversations with a small model, which knows only stories, and mistakes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"
#include "tessera/tessera.h"

#define MODEL TEST_DATA "/model/stories260K-f16.gguf"
#define CHAT "chat " MODEL " --format vicuna --greedy --max-tokens 12"

static void feed(const char *text)
{
    tool_feed(text, strlen(text));
}

/* The ids of a conversation, and the generated text after them. */
typedef struct oracle {
    int32_t ids[256];
    uint64_t count;
    char text[512];
} oracle;

static void add_message(oracle *o, const tsr_tokenizer *tokenizer, tsr_chat_after after,
                        const char *text)
{
    const tsr_chat_message message = {TSR_CHAT_USER, text, strlen(text)};
    int32_t *ids = NULL;
    uint64_t count = 0;
    ck_assert_ok(tsr_chat_encode(tokenizer,
                                 tsr_chat_params(.format = TSR_CHAT_VICUNA, .messages = &message,
                                                 .count = 1, .after = after),
                                 &ids, &count));
    ck_assert_uint_le(o->count + count, 256);
    memcpy(o->ids + o->count, ids, count * sizeof *ids);
    o->count += count;
    tsr_tokenizer_free_ids(&ids);
}

/* Lets `generate` reply, and adds the ids of the reply. */
static void reply(oracle *o)
{
    char arguments[2048] = "generate " MODEL " --greedy --json --max-tokens 12 --ids ";
    for (uint64_t i = 0; i < o->count; i++) {
        const size_t used = strlen(arguments);
        snprintf(arguments + used, sizeof arguments - used, "%s%d", i > 0 ? "," : "",
                 (int)o->ids[i]);
    }
    json_t *document = tool_json(arguments, "tessera.generate");
    const char *text = tool_text(document, "generated_text");
    snprintf(o->text, sizeof o->text, "%s\n", text + strspn(text, " \n"));
    const json_t *ids = tool_member(document, "ids");
    ck_assert_uint_eq(json_array_size(ids), o->count + 12);
    for (; o->count < json_array_size(ids); o->count++)
        o->ids[o->count] = (int32_t)json_integer_value(json_array_get(ids, o->count));
    json_decref(document);
}

/* Replies are what `generate` writes after the conversation so far; a message of two lines, an
 * empty line, and a second conversation that the first does not change. */
START_TEST(replies_continue_the_conversation)
{
    tsr_tokenizer *tokenizer = NULL;
    oracle o = {0};
    char wanted[2048] = "";
    ck_assert_ok(tsr_tokenizer_open(MODEL, &tokenizer));
    add_message(&o, tokenizer, TSR_CHAT_AFTER_NOTHING, "Once\nupon");
    reply(&o);
    const oracle first = o;
    add_message(&o, tokenizer, TSR_CHAT_AFTER_CUT, "The dog");
    reply(&o);
    tsr_tokenizer_destroy(&tokenizer);
    snprintf(wanted, sizeof wanted, "%s%s%s", first.text, o.text, first.text);
    feed("\nOnce\\\nupon\nThe dog\n/clear\nOnce\\\nupon\n/exit\nThe dog\n");
    tool_prints(CHAT, wanted);
}
END_TEST

START_TEST(ranks_talk_together)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    feed("Once upon\nThe dog\n");
    tool_result one = tool_run(CHAT);
    feed("Once upon\nThe dog\n");
    tool_result two = tool_run("launch --no-prefix -n 2 -- " TEST_TOOL " " CHAT);
    ck_assert_int_eq(one.exit_code, 0);
    ck_assert_int_eq(two.exit_code, 0);
    ck_assert_str_eq(two.out, one.out);
    ck_assert_int_eq(tool_count(one.out, "\n"), 2);
    tool_result_free(&one);
    tool_result_free(&two);
}
END_TEST

START_TEST(a_full_context_is_told)
{
    feed("Once upon a time there was a dog\nOnce\n/clear\nOnce\n/help\n");
    tool_result result =
        tool_run("chat " MODEL " --format vicuna --greedy --context 40 --system Stories");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_int_eq(tool_count(result.err, "chat: the context of 40 tokens is full; /clear begins "
                                            "a new conversation\n"),
                     2);
    ck_assert_int_eq(tool_count(result.err, "and of the context of 40 only 0 are left; /clear"), 1);
    ck_assert_int_eq(tool_count(result.err, "/exit ends the program"), 1);
    ck_assert_int_eq(tool_count(result.out, "\n"), 2);
    tool_result_free(&result);
}
END_TEST

START_TEST(mistakes_are_named)
{
    feed("");
    tool_refuses("chat", "tessera: chat: missing MODEL, a folder or a file\n");
    tool_refuses("chat x --format gemma",
                 "tessera: chat: --format takes chatml, llama2, llama3, mistral, mistral-v1, "
                 "mistral-v3, mistral-tekken, mistral-v7, mistral-v7-tekken, zephyr, vicuna, "
                 "deepseek, not 'gemma'\n");
    tool_fails("chat " MODEL, "tessera: chat: the model's files have no chat template; choose a "
                              "format by its name with --format\n");
    tool_fails("chat /nowhere --format chatml",
               "tokenizer: cannot open /nowhere: No such file or directory");
    tool_prints(CHAT, "");
}
END_TEST

/* Interrupts ----------------------------------------------------------------------------------- */

/* Talks over pipes, and interrupts the first reply once, as a terminal does: with all processes of
 * the group. */
static void interrupt(bool launched)
{
    int in[2], out[2];
    char buffer[65536];
    size_t used = 0;
    ck_assert_int_eq(pipe(in), 0);
    ck_assert_int_eq(pipe(out), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        setpgid(0, 0);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        for (int i = 0; i < 2; i++) {
            close(in[i]);
            close(out[i]);
        }
        char command[1024];
        snprintf(command, sizeof command,
                 "exec %s chat " MODEL " --format vicuna --greedy --ignore-end --context 60000",
                 launched ? TEST_TOOL " launch --no-prefix -n 2 -- " TEST_TOOL : TEST_TOOL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(99);
    }
    close(in[0]);
    close(out[1]);
    ck_assert_int_eq((int)write(in[1], "Once\n", 5), 5);
    ssize_t got;
    bool sent = false, ended = false;
    while ((got = read(out[0], buffer + used, sizeof buffer - 1 - used)) > 0) {
        used += (size_t)got;
        buffer[used] = '\0';
        if (!sent && used > 8) { /* some tokens are there */
            ck_assert_int_eq(kill(-pid, SIGINT), 0);
            sent = true;
        } else if (sent && !ended && buffer[used - 1] == '\n') {
            /* One rank alone goes on with the conversation. */
            if (!launched)
                ck_assert_int_eq((int)write(in[1], "/exit\n", 6), 6);
            ended = true;
        }
    }
    int status;
    close(in[1]);
    close(out[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), launched ? 130 : 0);
    ck_assert(sent && ended);
}

START_TEST(an_interrupt_ends_the_reply)
{
    interrupt(false);
}
END_TEST

START_TEST(an_interrupt_ends_the_chat_of_ranks)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    interrupt(true);
}
END_TEST

TESTS(chat)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, replies_continue_the_conversation);
    tcase_add_test(tests, ranks_talk_together);
    tcase_add_test(tests, a_full_context_is_told);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, an_interrupt_ends_the_reply);
    tcase_add_test(tests, an_interrupt_ends_the_chat_of_ranks);
}
