#include "cli/tool.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/tool_config.h"
#include "support/check.h"

extern char **environ;

#define MAX_ARGUMENTS 64

static char *read_and_close(FILE *file, size_t *length)
{
    size_t used = 0, size = 1 << 16;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    rewind(file);
    for (size_t got; (got = fread(text + used, 1, size - used - 1, file)) > 0;) {
        used += got;
        if (size - used < 2) {
            text = realloc(text, size *= 2);
            ck_assert_ptr_nonnull(text);
        }
    }
    text[used] = '\0';
    *length = used;
    fclose(file);
    return text;
}

/* Removes the lines of progress, in place. */
static void drop_progress(char *text)
{
    char *to = text;
    for (char *line = text, *next; *line != '\0'; line = next) {
        const size_t length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        if (strncmp(line, "progress: ", 10) == 0)
            continue;
        memmove(to, line, (size_t)(next - line));
        to += next - line;
    }
    *to = '\0';
}

tool_result tool_run_into(const char *arguments, FILE *out)
{
    char *copy = strdup(arguments), *argv[MAX_ARGUMENTS + 2] = {(char[]){TEST_TOOL}};
    int argc = 1;
    ck_assert_ptr_nonnull(copy);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        ck_assert_int_lt(argc, MAX_ARGUMENTS);
        argv[argc++] = word;
    }

    FILE *err = tmpfile();
    ck_assert(out != NULL && err != NULL);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(err), STDERR_FILENO);
    pid_t child;
    ck_assert_int_eq(posix_spawn(&child, TEST_TOOL, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    free(copy);

    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    tool_result result = {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
    size_t err_size;
    result.out = read_and_close(out, &result.out_size);
    result.err = read_and_close(err, &err_size);
    drop_progress(result.err);
    return result;
}

tool_result tool_run(const char *arguments)
{
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("COLUMNS");
    return tool_run_into(arguments, tmpfile());
}

tool_result tool_run_in(const char *arguments, const char *locale, const char *columns)
{
    setenv("LC_ALL", locale, 1);
    setenv("COLUMNS", columns, 1);
    return tool_run_into(arguments, tmpfile());
}

tool_result tool_run_appending(const char *arguments, const char *path)
{
    return tool_run_into(arguments, fopen(path, "a+"));
}

/* Becomes the tool, or a launcher of it, in a process group of its own. */
static void become_tool(const char *arguments, bool launched, const int in[2], const int out[2])
{
    char command[1024];
    snprintf(command, sizeof command, "exec %s %s",
             launched ? TEST_TOOL " launch --no-prefix -n 2 -- " TEST_TOOL : TEST_TOOL, arguments);
    setpgid(0, 0);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    for (int i = 0; i < 2; i++) {
        close(in[i]);
        close(out[i]);
    }
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(99);
}

static void give(int file, const char *text)
{
    const size_t size = text ? strlen(text) : 0;
    ck_assert_int_eq((int)write(file, text ? text : "", size), (int)size);
}

tool_result tool_interrupt(const char *arguments, bool launched, const char *input,
                           const char *afterwards)
{
    enum { CAPACITY = 65536, SOME_TOKENS = 8 /* bytes */ };
    tool_result result = {.out = calloc(CAPACITY, 1), .err = calloc(1, 1)};
    int in[2], out[2], status;
    ck_assert(result.out != NULL && result.err != NULL);
    ck_assert_int_eq(pipe(in), 0);
    ck_assert_int_eq(pipe(out), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        become_tool(arguments, launched, in, out);
    close(in[0]);
    close(out[1]);
    give(in[1], input);
    ssize_t got;
    bool sent = false, ended = false;
    while ((got = read(out[0], result.out + result.out_size, CAPACITY - 1 - result.out_size)) > 0) {
        result.out_size += (size_t)got;
        if (!sent && result.out_size > SOME_TOKENS) {
            ck_assert_int_eq(kill(-pid, SIGINT), 0);
            sent = true;
        } else if (sent && !ended && result.out[result.out_size - 1] == '\n') {
            give(in[1], afterwards);
            ended = true;
        }
    }
    close(in[1]);
    close(out[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(sent);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
}

void tool_feed(const void *bytes, size_t size)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    rewind(file);
    ck_assert_int_eq(dup2(fileno(file), STDIN_FILENO), STDIN_FILENO);
    fclose(file);
}

void tool_result_free(tool_result *result)
{
    free(result->out);
    free(result->err);
}

static void check(const char *arguments, const char *output, const char *errors, int exit_code)
{
    tool_result result = tool_run(arguments);
    ck_assert_str_eq(result.err, errors);
    ck_assert_str_eq(result.out, output);
    ck_assert_msg(result.exit_code == exit_code, "%s: exit code %d, not %d", arguments,
                  result.exit_code, exit_code);
    tool_result_free(&result);
}

void tool_prints(const char *arguments, const char *output)
{
    check(arguments, output, "", 0);
}

void tool_refuses(const char *arguments, const char *sentence)
{
    check(arguments, "", sentence, 2);
}

void tool_reports(const char *arguments, const char *sentence)
{
    check(arguments, "", sentence, 1);
}

void tool_fails(const char *arguments, const char *words)
{
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_msg(strstr(result.err, words) != NULL, "'%s' lacks '%s'", result.err, words);
    tool_result_free(&result);
}

int tool_count(const char *text, const char *words)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        count++;
    return count;
}

json_t *tool_json(const char *arguments, const char *schema)
{
    return tool_json_version(arguments, schema, 1);
}

json_t *tool_json_version(const char *arguments, const char *schema, int version)
{
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s: exit code %d: %s", arguments, result.exit_code,
                  result.err);
    ck_assert_str_eq(result.err, "");
    json_error_t error;
    json_t *document = json_loads(result.out, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    ck_assert_msg(document != NULL, "%s: line %d: %s", arguments, error.line, error.text);
    ck_assert_str_eq(tool_text(document, "schema"), schema);
    ck_assert_int_eq((int)tool_number(document, "schema_version"), version);
    tool_result_free(&result);
    return document;
}

const json_t *tool_member(const json_t *object, const char *name)
{
    const json_t *member = json_object_get(object, name);
    ck_assert_msg(member != NULL, "there is no \"%s\"", name);
    return member;
}

double tool_number(const json_t *object, const char *name)
{
    const json_t *member = tool_member(object, name);
    ck_assert_msg(json_is_number(member), "\"%s\" is no number", name);
    return json_number_value(member);
}

const char *tool_text(const json_t *object, const char *name)
{
    const json_t *member = tool_member(object, name);
    ck_assert_msg(json_is_string(member), "\"%s\" is no string", name);
    return json_string_value(member);
}
