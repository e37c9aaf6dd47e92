/* Tests tessera chat: conversations with a small model, which knows only stories, and mistakes. */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
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

/* The token ids of a conversation and of the replies to it, and the text of the last reply, as
 * `generate` gives them. */
typedef struct oracle {
    int32_t ids[256];
    uint64_t count;
    char text[512];
} oracle;

static void add_bytes(oracle *o, const tsr_tokenizer *tokenizer, tsr_chat_after after,
                      const char *text, size_t size)
{
    const tsr_chat_message message = {
        .struct_size = sizeof message, .role = TSR_CHAT_USER, .text = text, .size_bytes = size};
    int32_t *ids = NULL;
    uint64_t count = 0;
    ck_assert_ok(tsr_chat_encode(tokenizer,
                                 tsr_chat_params(.format = TSR_CHAT_VICUNA, .messages = &message,
                                                 .count = 1, .after = after, .begin_reply = true),
                                 &ids, &count));
    ck_assert_uint_le(o->count + count, 256);
    memcpy(o->ids + o->count, ids, count * sizeof *ids);
    o->count += count;
    tsr_tokenizer_free_ids(&ids);
}

static void add_message(oracle *o, const tsr_tokenizer *tokenizer, tsr_chat_after after,
                        const char *text)
{
    add_bytes(o, tokenizer, after, text, strlen(text));
}

/* How the model goes on after "Once", in 12 tokens, as the tests of `generate` have it. */
#define AFTER_ONCE "upon a time, there was a little girl named"

/* Makes `generate` reply, and adds the ids of the reply. */
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

/* Replies must be what `generate` writes after the conversation so far, also with two ranks. One
 * message has two lines. An empty line is not a message. The conversation before /clear must not
 * affect the one after it. Lines may end as on Windows. */
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
    tsr_tokenizer_close(&tokenizer);
    snprintf(wanted, sizeof wanted, "%s%s%s", first.text, o.text, first.text);
    feed("\nOnce\\\nupon\nThe dog\n/clear\nOnce\\\nupon\n/exit\nThe dog\n");
    tool_prints(CHAT, wanted);
    feed("\r\nOnce\\\r\nupon\r\nThe dog\r\n/clear  \r\nOnce\\\r\nupon\r\n/exit \t\r\nThe dog\r\n");
    tool_prints(TEST_HAVE_UCX ? "launch --no-prefix -n 2 -- " TEST_TOOL " " CHAT : CHAT, wanted);
}
END_TEST

/* A zero byte is part of a message. A line of 9000 bytes is one message. */
START_TEST(lines_are_whole)
{
    static const char zero[] = "Once\0upon\n";
    static char line[9002];
    tsr_tokenizer *tokenizer = NULL;
    oracle o = {0};
    ck_assert_ok(tsr_tokenizer_open(MODEL, &tokenizer));
    add_bytes(&o, tokenizer, TSR_CHAT_AFTER_NOTHING, zero, sizeof zero - 2);
    tsr_tokenizer_close(&tokenizer);
    reply(&o);
    tool_feed(zero, sizeof zero - 1);
    tool_prints(CHAT, o.text);

    memset(line, 'a', 9000);
    line[9000] = '\n';
    feed(line);
    tool_result result = tool_run("chat " MODEL " --format vicuna --context 64");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_int_eq(tool_count(result.err, "chat: the message has "), 1);
    ck_assert_int_eq(tool_count(result.err, " tokens, but the context only 64; --context "), 1);
    ck_assert_str_eq(result.out, "");
    tool_result_free(&result);
}
END_TEST

/* Each reply begins the grammar again. */
START_TEST(replies_follow_a_grammar)
{
    char place[] = "/tmp/tessera-chat-XXXXXX", path[64], command[256];
    ck_assert_ptr_nonnull(mkdtemp(place));
    snprintf(path, sizeof path, "%s/file", place);
    FILE *file = fopen(path, "w");
    ck_assert(file != NULL && fputs("{\"const\": [1, \"a\"]}", file) >= 0 && fclose(file) == 0);
    snprintf(command, sizeof command, CHAT " --json-schema %s", path);
    feed("Once\nAnd then?\n");
    tool_prints(command, "[1, \"a\"]\n[1,\"a\"]\n");
    file = fopen(path, "w");
    ck_assert(file != NULL && fputs("root ::= \"so\" x", file) >= 0 && fclose(file) == 0);
    snprintf(command, sizeof command, CHAT " --grammar %s", path);
    tool_fails(command, "line 1, column 15: there is no rule 'x'");
    tool_refuses(CHAT " --grammar a --json-schema b",
                 "tessera: chat: --grammar and --json-schema exclude each other\n");
    tests_remove(place);
}
END_TEST

START_TEST(unreadable_input_is_an_error)
{
    const int folder = open(TEST_DATA, O_RDONLY);
    ck_assert_int_ge(folder, 0);
    ck_assert_int_eq(dup2(folder, STDIN_FILENO), STDIN_FILENO);
    close(folder);
    tool_fails(CHAT, "tessera: chat: cannot read standard input: Is a directory\n");
}
END_TEST

/* If the input breaks off within a line, the incomplete line is not a message. The test closes a
 * connection with unread bytes, which breaks the input off. */
START_TEST(input_that_breaks_off_is_an_error)
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ck_assert_int_eq((int)write(ends[0], "Once", 4), 4);
    ck_assert_int_eq((int)write(ends[1], "x", 1), 1);
    close(ends[0]);
    ck_assert_int_eq(dup2(ends[1], STDIN_FILENO), STDIN_FILENO);
    close(ends[1]);
    tool_fails(CHAT, "tessera: chat: cannot read standard input: Connection reset by peer\n");
}
END_TEST

START_TEST(a_full_disk_ends_the_chat)
{
    FILE *full = fopen("/dev/full", "w");
    ck_assert_ptr_nonnull(full);
    feed("Once\nOnce\n");
    tool_result result =
        tool_run_into("chat " MODEL " --format vicuna --greedy --ignore-end --context 60000", full);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err,
                     "tessera: note: --context is 60000, but the model was made for 512 tokens; "
                     "longer texts may become worse\n"
                     "tessera: cannot write to standard output: No space left on device\n");
    tool_result_free(&result);
}
END_TEST

START_TEST(help_names_all_formats)
{
    tool_result result = tool_run("help chat");
    for (int i = 1; i < TSR_CHAT_FORMATS; i++)
        ck_assert_int_ge(tool_count(result.out, tsr_chat_format_name((tsr_chat_format)i)), 1);
    tool_result_free(&result);
}
END_TEST

START_TEST(a_full_context_is_told)
{
    feed("Once upon a time there was a dog\nOnce\n/clear\n/exit now\nOnce\n/help\n");
    tool_result result =
        tool_run("chat " MODEL " --format vicuna --greedy --context 40 --system Stories");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_int_eq(tool_count(result.err, "chat: the context of 40 tokens is full; /clear begins "
                                            "a new conversation\n"),
                     2);
    ck_assert_int_eq(tool_count(result.err, "and of the context of 40 only 0 are left; /clear"), 1);
    ck_assert_int_eq(tool_count(result.err, "/exit ends the program"), 1);
    ck_assert_int_eq(tool_count(result.err, "tessera: chat: nothing may follow /exit, and the "
                                            "model does not get this line; with a space before "
                                            "/exit it is a message\n"),
                     1);
    ck_assert_int_eq(tool_count(result.out, "\n"), 2);
    tool_result_free(&result);
}
END_TEST

/* A reply that is written again has other draws, and takes the place of the first. */
START_TEST(replies_are_written_again)
{
    char place[] = "/tmp/tessera-chat-XXXXXX", path[64], input[256];
    ck_assert_ptr_nonnull(mkdtemp(place));
    snprintf(path, sizeof path, "%s/saved", place);
    snprintf(input, sizeof input,
             "/regen\n/save\n/exti\nOnce\nThe dog\n/regen\n/save %s\n/save %s\n", path, path);
    feed(input);
    tool_result result =
        tool_run("chat " MODEL " --format vicuna --temperature 1.5 -n 9 -s 3 -c 200");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_int_eq(tool_count(result.err, "chat: there is no reply to write again\n"), 1);
    ck_assert_int_eq(tool_count(result.err, "chat: missing FILE after /save\n"), 1);
    ck_assert_int_eq(tool_count(result.err, "chat: unknown command '/exti'; did you mean '/exit'?; "
                                            "with a space before it, the line is a message\n"),
                     1);
    ck_assert_int_eq(tool_count(result.err, "has the conversation, 2 messages and as many"), 1);
    ck_assert_int_eq(tool_count(result.err, "/saved: File exists\n"), 1);
    json_t *saved = json_load_file(path, 0, NULL);
    const json_t *messages = tool_member(saved, "messages");
    ck_assert_uint_eq(json_array_size(messages), 4);
    ck_assert_str_eq(tool_text(json_array_get(messages, 2), "role"), "user");
    ck_assert_str_eq(tool_text(json_array_get(messages, 2), "content"), "The dog");
    ck_assert_str_eq(tool_text(json_array_get(messages, 3), "role"), "assistant");
    const char *kept = tool_text(json_array_get(messages, 3), "content");
    const size_t length = strlen(kept);
    ck_assert_uint_gt(result.out_size, length + 1);
    ck_assert_int_eq(strncmp(result.out + result.out_size - length - 1, kept, length), 0);
    ck_assert_int_eq(tool_count(result.out, kept), 1); /* the first reply was another */
    json_decref(saved);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(place), 0);
    tool_result_free(&result);
}
END_TEST

/* Without a format, the model continues the message as `generate` continues a prompt. */
START_TEST(plain_messages_are_continued)
{
    feed("Once\n");
    tool_prints("chat " MODEL " --plain --greedy -n 12", AFTER_ONCE "\n");
}
END_TEST

/* Reads what a terminal shows until `words` have come `times` times. */
static void wait_for(int screen, char *shown, size_t size, const char *words, int times)
{
    size_t used = strlen(shown);
    while (tool_count(shown, words) < times) { /* ends, because the test's time is limited */
        const ssize_t got = read(screen, shown + used, size - used - 1);
        ck_assert_msg(got > 0, "the tool has ended: %s", shown);
        used += (size_t)got;
        shown[used] = '\0';
    }
}

/* On a terminal, the line "Oncx", Backspace and "e" is "Once", and the arrow brings it back. */
START_TEST(lines_are_edited)
{
    static char shown[65536];
    struct termios before, after;
    int status = 0;
    if (!TEST_HAVE_LINE_EDITING)
        SKIP("the tool was built without libedit");
    const int screen = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert(screen >= 0 && grantpt(screen) == 0 && unlockpt(screen) == 0);
    const int terminal = open(ptsname(screen), O_RDWR | O_NOCTTY);
    ck_assert(terminal >= 0 && tcgetattr(terminal, &before) == 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        setenv("TERM", "xterm", 1);
        for (int i = 0; i < 3; i++)
            dup2(terminal, i);
        close(screen);
        execl(TEST_TOOL, TEST_TOOL, "chat", MODEL, "--plain", "--greedy", "-n", "12", (char *)NULL);
        _exit(99);
    }
    wait_for(screen, shown, sizeof shown, "> ", 1);
    ck_assert_int_eq((int)write(screen, "Oncx\177e\r", 7), 7);
    wait_for(screen, shown, sizeof shown, AFTER_ONCE, 1);
    ck_assert_int_eq((int)write(screen, "/clear\r", 7), 7);
    ck_assert_int_eq((int)write(screen, "\033[A\033[A\r", 7), 7);
    wait_for(screen, shown, sizeof shown, AFTER_ONCE, 2);
    ck_assert_int_eq((int)write(screen, "/exit\r", 6), 6);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d: %s", status, shown);
    ck_assert_int_eq(tcgetattr(terminal, &after), 0);
    ck_assert_uint_eq(after.c_lflag, before.c_lflag);
    close(terminal);
    close(screen);
}
END_TEST

START_TEST(mistakes_are_named)
{
    feed("");
    tool_refuses("chat", "tessera: chat: missing MODEL, a folder or a file\n");
    tool_refuses("chat x --format gemma5",
                 "tessera: chat: --format takes chatml, llama2, llama3, mistral, mistral-v1, "
                 "mistral-v3, mistral-tekken, mistral-v7, mistral-v7-tekken, zephyr, vicuna, "
                 "deepseek, gemma, gemma4, phi3, phi4, phi4-mini, granite, olmo2, glm4, glm4.5, "
                 "minimax-m2, harmony, mistral-v11-tekken, mistral-v13-tekken, not 'gemma5'\n");
    tool_fails("chat " MODEL, "tessera: chat: the model's files have no chat template; choose a "
                              "format by its name with --format, or --plain\n");
    tool_refuses("chat x --plain --format chatml",
                 "tessera: chat: --plain and --format exclude each other\n");
    tool_refuses("chat x --plain --system y",
                 "tessera: chat: --system needs a format, and --plain is the lack of one\n");
    tool_fails("chat " MODEL " --plain --lora /proc/nowhere",
               "tessera: chat: --lora /proc/nowhere: ");
    tool_fails("chat /proc/nowhere --format chatml",
               "tessera: chat: cannot open /proc/nowhere: No such file or directory");
    tool_prints(CHAT, "");
}
END_TEST

/* Interrupts ----------------------------------------------------------------------------------- */

/* Interrupts a chat. Its input does not end, so a chat that ignored the signal would continue to
 * read. */
static void interrupt(bool launched, const char *afterwards, int exit_code)
{
    tool_result result =
        tool_interrupt("chat " MODEL " --format vicuna --greedy --ignore-end --context 60000",
                       launched, "Once\n", afterwards);
    ck_assert_int_eq(result.exit_code, exit_code);
    ck_assert_int_eq(result.out[result.out_size - 1], '\n');
    tool_result_free(&result);
}

START_TEST(an_interrupt_ends_the_reply)
{
    interrupt(false, "/exit\n", 0);
}
END_TEST

START_TEST(an_interrupt_ends_the_chat_of_ranks)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    interrupt(true, NULL, 130);
}
END_TEST

/* Fills a pipe, except for the last `except` bytes. Returns how many bytes it then holds. */
static int fill(int from, int to, int except)
{
    static char bytes[4096];
    int capacity = 0;
    ck_assert_int_eq(fcntl(to, F_SETFL, O_NONBLOCK), 0);
    for (ssize_t put; (put = write(to, bytes, sizeof bytes)) > 0;)
        capacity += (int)put;
    ck_assert_int_eq(fcntl(to, F_SETFL, 0), 0);
    for (int left = capacity; left > 0;)
        left -= (int)read(from, bytes, sizeof bytes);
    for (int left = capacity - except; left > 0;)
        left -= (int)write(to, bytes, left < (int)sizeof bytes ? (size_t)left : sizeof bytes);
    return capacity - except;
}

/* Waits until the tool does not write any more, because a pipe that held `before` bytes is full. */
static void wait_until_blocked(int from, int before)
{
    int held = 0, last = 0;
    for (int quiet = 0; held <= before || quiet < 10; quiet = held == last ? quiet + 1 : 0) {
        last = held;
        nanosleep(&(struct timespec){0, 50000000}, NULL); /* the test's time is limited */
        ck_assert_int_eq(ioctl(from, FIONREAD, &held), 0);
    }
}

/* The signal arrives while the tool is writing, as when a pager or a terminal has stopped
 * reading. */
START_TEST(an_interrupt_loses_no_text)
{
    int in[2], out[2], status;
    char bytes[4096];
    ck_assert_int_eq(pipe(in), 0);
    ck_assert_int_eq(pipe(out), 0);
    const int before = fill(out[0], out[1], 32);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execl(TEST_TOOL, TEST_TOOL, "chat", MODEL, "--format", "vicuna", "--greedy", "--ignore-end",
              "--context", "60000", (char *)NULL);
        _exit(99);
    }
    close(in[0]);
    close(out[1]);
    ck_assert_int_eq((int)write(in[1], "Once\n", 5), 5);
    wait_until_blocked(out[0], before);
    ck_assert_int_eq(kill(pid, SIGINT), 0);
    close(in[1]);
    while (read(out[0], bytes, sizeof bytes) > 0)
        ;
    close(out[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

TESTS(chat)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, replies_continue_the_conversation);
    tcase_add_test(tests, lines_are_whole);
    tcase_add_test(tests, replies_follow_a_grammar);
    tcase_add_test(tests, unreadable_input_is_an_error);
    tcase_add_test(tests, input_that_breaks_off_is_an_error);
    tcase_add_test(tests, a_full_disk_ends_the_chat);
    tcase_add_test(tests, help_names_all_formats);
    tcase_add_test(tests, a_full_context_is_told);
    tcase_add_test(tests, replies_are_written_again);
    tcase_add_test(tests, plain_messages_are_continued);
    tcase_add_test(tests, lines_are_edited);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, an_interrupt_ends_the_reply);
    tcase_add_test(tests, an_interrupt_ends_the_chat_of_ranks);
    tcase_add_test(tests, an_interrupt_loses_no_text);
}
