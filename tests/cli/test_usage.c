/* Tests arguments, exit codes and help on a machine without a driver. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"
#include "tessera/base.h"
#include "tsr_config.h"

START_TEST(prints_its_version)
{
    char expected[64];
    snprintf(expected, sizeof expected, "tessera %s\n", tsr_version());
    tool_prints("--version", expected);
}
END_TEST

START_TEST(help_names_every_command)
{
    static const char *const ways[] = {"help", "--help", "-h"};
    for (int i = 0; i < 3; i++) {
        tool_result result = tool_run(ways[i]);
        ck_assert_int_eq(result.exit_code, 0);
        ck_assert_ptr_nonnull(strstr(result.out, "\n  devices "));
        ck_assert_ptr_nonnull(strstr(result.out, "\n  bench "));
        ck_assert_ptr_nonnull(strstr(result.out, "\n  help "));
        ck_assert_str_eq(result.err, "");
        tool_result_free(&result);
    }
}
END_TEST

static const struct {
    const char *arguments, *words;
} helps[] = {
    {"help devices", "usage: tessera devices"},
    {"devices --help", "  --json"},
    {"devices --json -h", "  --json"},
    {"help convert", "usage: tessera convert SOURCE DESTINATION"},
    {"help quantize", "usage: tessera quantize --type TYPE"},
    {"help checkpoint", "  tessera checkpoint verify  "},
    {"checkpoint merge --help", "usage: tessera checkpoint merge PATH"},
    {"help tokenize", "usage: tessera tokenize FILE"},
    {"help data", "  tessera data check  "},
    {"data check --help", "usage: tessera data check FILE"},
    {"help help", "usage: tessera help"},
    {"help bench", "usage: tessera bench"},
#if TEST_HAVE_GPU_BENCH
    {"bench --help", "--shape MxKxN"},
    {"bench matmul --help", "\nmatmul:\n"},
    {"help bench compare", "--of-ceiling"},
    {"help bench model", "--prefill N"},
    {"bench report --help", "usage: tessera bench report FILE"},
    {"bench compare a b -h", "--threshold PERCENT"},
#endif
};

START_TEST(help_explains_a_command)
{
    tool_result result = tool_run(helps[_i].arguments);
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_msg(strstr(result.out, helps[_i].words) != NULL, "%s: no '%s' in: %s",
                  helps[_i].arguments, helps[_i].words, result.out);
    ck_assert_str_eq(result.err, "");
    tool_result_free(&result);
}
END_TEST

/* Checks that every line fits, and that all characters are ASCII. */
static void check_narrow(const char *arguments, const char *text, size_t columns)
{
    size_t width = 0;
    for (const char *at = text; *at != '\0'; at++) {
        ck_assert_msg((unsigned char)*at < 0x80, "%s: not ASCII: %.20s", arguments, at);
        width = *at == '\n' ? 0 : width + 1;
        ck_assert_msg(width <= columns, "%s: more than %zu columns: %.*s", arguments, columns,
                      (int)columns, at - columns);
    }
}

static const char *const narrow[] = {
    "help",         "help help",     "help devices",    "help plan",
    "help sample",  "help bench",    "help generate",   "help chat",
    "help convert", "help quantize", "help checkpoint", "help tokenize",
    "help launch",  "help serve",    "help data",       "data check --help"};

START_TEST(help_fits_a_narrow_terminal_without_utf8)
{
    tool_result result = tool_run_in(narrow[_i], "C", "40");
    ck_assert_int_eq(result.exit_code, 0);
    check_narrow(narrow[_i], result.out, 40);
    tool_result_free(&result);
    result = tool_run(narrow[_i]);
    ck_assert_ptr_null(strstr(result.out, "\n\n\n"));
    tool_result_free(&result);
}
END_TEST

/* Wrong arguments give exit code 2, one sentence on standard error, and no output. */
static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"", "tessera: missing command; see 'tessera help'\n"},
    {"frobnicate", "tessera: unknown command 'frobnicate'; see 'tessera help'\n"},
    {"--frobnicate", "tessera: unknown option '--frobnicate'; see 'tessera help'\n"},
    {"--version --json", "tessera: --version: unexpected argument '--json'\n"},
    {"--hlep", "tessera: unknown option '--hlep'; did you mean '--help'?\n"},
    {"--frob", "tessera: unknown option '--frob'; see 'tessera help'\n"},
    {"help frobnicate", "tessera: help: unknown command 'frobnicate'; see 'tessera help'\n"},
    {"help help bench", "tessera: help: unexpected argument 'bench'\n"},
    {"help bench copy", "tessera: help: unexpected argument 'copy'\n"},
    {"fro\nb\x1b[2J\xc2\x9b\x9b\x7f\r\tµ",
     "tessera: unknown command 'fro\\nb\\x1b[2J\\xc2\\x9b\\x9b\\x7f\\x0d\\x09µ'; see 'tessera "
     "help'\n"},
    {"generat", "tessera: unknown command 'generat'; did you mean 'generate'?\n"},
    {"help tokenise", "tessera: help: unknown command 'tokenise'; did you mean 'tokenize'?\n"},
    {"generate --temprature 1",
     "tessera: generate: unknown option '--temprature'; did you mean '--temperature'?\n"},
    {"chat --tmeperature=1",
     "tessera: chat: unknown option '--tmeperature=1'; did you mean '--temperature'?\n"},
    {"sample random --sede 1",
     "tessera: sample: unknown option '--sede'; did you mean '--seed'?\n"},
    {"devices 0", "tessera: devices: unexpected argument '0'\n"},
    {"devices -- --json", "tessera: devices: unexpected argument '--json'\n"},
    {"devices --jsonx", "tessera: devices: unknown option '--jsonx'; did you mean '--json'?\n"},
    {"devices -json", "tessera: devices: unknown option '-json'; did you mean '--json'?\n"},
    {"devices --json=yes", "tessera: devices: --json takes no value\n"},
#if TEST_HAVE_GPU_BENCH
    {"bench mdel", "tessera: bench: unknown benchmark 'mdel'; did you mean 'model'?\n"},
    {"bench matmull", "tessera: bench: unknown benchmark 'matmull'; did you mean 'matmul'?\n"},
    {"bench model m.gguf --type q4_0",
     "tessera: bench model: --type is for a generated model; remove it, or 'm.gguf'. --dtype q4_0 "
     "converts the matrices of a file\n"},
    {"help report", "tessera: help: unknown command 'report'; try 'tessera help bench report'\n"},
    {"bench matmul copy", "tessera: bench: unexpected argument 'copy'\n"},
    {"bench matmul --shape 3x4",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x4'\n"},
    {"bench matmul --shape 3x4x5x6",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x4x5x6'\n"},
    {"bench matmul --shape 3x0x5",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x0x5'\n"},
    {"bench matmul --shape 3x+4x5",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x+4x5'\n"},
    {"bench matmul --shape 3x4x16777217",
     "tessera: bench: --shape takes MxKxN, each from 1 to 16777216, not '3x4x16777217'\n"},
    {"bench matmul --shape 16777216x256x1",
     "tessera: bench: --shape 16777216x256x1 has a matrix of more than 2147483648 elements\n"},
    {"bench matmul --shape 3x4x5 --shape 3x4x6 --shape 3x4x5",
     "tessera: bench: --shape 3x4x5 is given twice\n"},
    {"bench matmul --dtype i32", "tessera: bench: --dtype takes f32, f16 or bf16, not 'i32'\n"},
    {"bench matmul --dtype f16 --dtype f16", "tessera: bench: --dtype f16 is given twice\n"},
    {"bench matmul --size 1", "tessera: bench: matmul does not take --size\n"},
    {"bench all-reduce -b 3",
     "tessera: bench: -b takes bytes from 4 to 1G, such as 8, 64K or 16M, not '3'\n"},
    {"bench all-reduce -e 2G",
     "tessera: bench: -e takes bytes from 4 to 1G, such as 8, 64K or 16M, not '2G'\n"},
    {"bench all-reduce -e M",
     "tessera: bench: -e takes bytes from 4 to 1G, such as 8, 64K or 16M, not 'M'\n"},
    {"bench rng -f 2", "tessera: bench: rng does not take --stepfactor\n"},
    {"bench -b 8", "tessera: bench: --minbytes, --maxbytes and --stepfactor need a BENCHMARK, a "
                   "collective operation\n"},
    {"bench copy --size 0", "tessera: bench: --size takes an integer from 1 to 1024, not '0'\n"},
    {"bench copy --size 1e3",
     "tessera: bench: --size takes an integer from 1 to 1024, not '1e3'\n"},
    {"bench copy --size 99999999999999999999",
     "tessera: bench: --size takes an integer from 1 to 1024, not '99999999999999999999'\n"},
    {"bench copy --size=", "tessera: bench: --size takes an integer from 1 to 1024, not ''\n"},
    {"bench copy --size", "tessera: bench: missing value: --size MIB\n"},
    {"bench copy --size --json", "tessera: bench: missing value: --size MIB\n"},
    {"bench copy --peer", "tessera: bench: copy does not take --peer\n"},
    {"bench launch --shape 1x1x1", "tessera: bench: launch does not take --shape\n"},
    {"bench first --shape 1x1x1 --shape 2x2x2", "tessera: bench: first takes one --shape, not 2\n"},
    {"bench launch --dtype f16", "tessera: bench: launch does not take --dtype\n"},
    {"bench matmul --time -1",
     "tessera: bench: --time takes a number from 0.001 to 600, not '-1'\n"},
    {"bench matmul --time nan",
     "tessera: bench: --time takes a number from 0.001 to 600, not 'nan'\n"},
    {"bench matmul --time 1s",
     "tessera: bench: --time takes a number from 0.001 to 600, not '1s'\n"},
    {"bench compare a b --threshold 0x10",
     "tessera: bench compare: --threshold takes a number from 0 to 1000, not '0x10'\n"},
#endif
};

START_TEST(refuses_wrong_arguments)
{
    tool_refuses(mistakes[_i].arguments, mistakes[_i].sentence);
}
END_TEST

#if TSR__HAVE_VULKAN
START_TEST(no_device_is_an_empty_list)
{
    setenv("TESSERA_VALIDATION", _i == 0 ? "0" : "", 1); /* both mean no validation */
    tool_result result = tool_run("devices");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_nonnull(strstr(result.out, "No Vulkan device was found."));
    tool_result_free(&result);

    json_t *document = tool_json("devices --json", "tessera.devices");
    ck_assert_int_eq((int)json_array_size(tool_member(document, "devices")), 0);
    ck_assert(json_is_boolean(tool_member(tool_member(document, "build"), "runtime_glsl")));
    json_decref(document);
}
END_TEST
#endif

/* Runs the tool, which must give exit code 1 and pass on the library's error. */
static void fails(const char *arguments, const char *words)
{
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_msg(strncmp(result.err, "tessera: ", 9) == 0 && strstr(result.err, words) != NULL,
                  "no '%s' in: %s", words, result.err);
    tool_result_free(&result);
}

START_TEST(failures_and_mistakes_have_different_exit_codes)
{
#if !TSR__HAVE_VULKAN
    fails("devices", "Vulkan");
#endif
#if TEST_HAVE_GPU_BENCH
    fails("bench matmul --time 0.001", "bench: there is no Vulkan driver");
    fails("bench launch --device 7", "there is no Vulkan driver");
    fails("bench --tune", "there is no Vulkan driver");
#elif !TEST_HAVE_BENCH
    fails("bench matmul", "built without benchmarks");
#endif
}
END_TEST

/* The exit codes are the same for all commands: 2 for an option that does not exist, 1 for a file
 * that is not there. */
static const char *const with_files[] = {
    "convert /proc/nonexistent /tmp/tessera-none.gguf",
    "generate /proc/nonexistent -p x",
    "chat /proc/nonexistent",
#if TEST_HAVE_SERVE
    "serve /proc/nonexistent --port 0",
#endif
    "train --data /proc/nonexistent",
    "info /proc/nonexistent",
    "tokenize /proc/nonexistent",
    "data check /proc/nonexistent --model /proc/nonexistent",
    "plan /proc/nonexistent --ranks 2",
    "plan /proc/nonexistent --ranks 2 --strategy inference",
    "plan /proc/nonexistent --cluster /proc/nonexistent",
    "checkpoint show /proc/nonexistent",
    "checkpoint verify /proc/nonexistent",
    "checkpoint merge /proc/nonexistent -o /tmp/tessera-none",
    "sample subset --indices /proc/nonexistent",
    "sample weighted --weights /proc/nonexistent --num-samples 2",
#if TEST_HAVE_BENCH
    "bench report /proc/nonexistent",
    "bench compare /proc/nonexistent /proc/nonexistent",
#endif
#if TEST_HAVE_GPU_BENCH
    "bench model /proc/nonexistent",
    "bench rates /proc/nonexistent",
#endif
};

START_TEST(exit_codes_are_the_same_for_all_commands)
{
    char arguments[256];
    tool_result result = tool_run(with_files[_i]);
    ck_assert_msg(result.exit_code == 1, "%s: %d: %s", with_files[_i], result.exit_code,
                  result.err);
    ck_assert_str_eq(result.out, "");
    tool_result_free(&result);
    snprintf(arguments, sizeof arguments, "%s --frobnicate", with_files[_i]);
    result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 2, "%s: %d: %s", arguments, result.exit_code, result.err);
    ck_assert_str_eq(result.out, "");
    tool_result_free(&result);
}
END_TEST

#if TEST_HAVE_BENCH
/* Reads the manual without its backslashes: "\-\-json" becomes "--json". */
static char *read_manual(void)
{
    FILE *file = fopen(TEST_MANUAL, "r");
    ck_assert_ptr_nonnull(file);
    char *text = calloc(1, 1 << 17);
    ck_assert_ptr_nonnull(text);
    size_t used = 0;
    for (int c; (c = fgetc(file)) != EOF && used < (1 << 17) - 1;)
        if (c != '\\')
            text[used++] = (char)c;
    fclose(file);
    return text;
}

/* Returns true if `text` contains `word` as a whole word. */
static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        char before = at == text ? ' ' : at[-1], after = at[length];
        if (before != '-' && !isalnum((unsigned char)before) && after != '-' &&
            !isalnum((unsigned char)after))
            return true;
    }
    return false;
}

/* A command, the start of its part of the manual, and the start of the next part. */
static const struct {
    const char *command, *begin, *end;
} explained[] = {
    {"devices", "\n.SS devices\n", "\n.SS "},
    {"bench model", "\n.B tessera bench model\nmeasures ", "\n.B tessera bench rates\n"},
    {"bench rates", "\n.B tessera bench rates\nmeasures ", "\n.B tessera bench serve\n"},
    {"bench serve", "\n.B tessera bench serve\nmeasures ", "\n.B tessera bench report\n"},
    {"bench", "\n.SS bench\n", "\n.B tessera bench model\n"},
    {"bench report", "\n.B tessera bench report\nmakes ", "\n.B tessera bench compare\n"},
    {"bench compare", "\n.B tessera bench compare\nlists ", "\n.SS "},
    {"sample", "\n.SS sample\n", "\n.SS "},
    {"plan", "\n.SS plan\n", "\n.SS "},
    {"convert", "\n.SS convert\n", "\n.SS "},
    {"merge", "\n.SS merge\n", "\n.SS "},
    {"quantize", "\n.SS quantize\n", "\n.SS "},
    {"checkpoint show", "\n.B tessera checkpoint show\nprints ",
     "\n.B tessera checkpoint verify\n"},
    {"checkpoint merge", "\n.B tessera checkpoint merge\nwrites ", "\n.SS "},
    {"generate", "\n.SS generate\n", "\n.SS "},
    {"chat", "\n.SS chat\n", "\n.SS "},
    {"serve", "\n.SS serve\n", "\n.SS "},
    {"train", "\n.SS train\n", "\n.SS "},
    {"finetune", "\n.SS finetune\n", "\n.SS "},
    {"info", "\n.SS info\n", "\n.SS "},
    {"tokenize", "\n.SS tokenize\n", "\n.SS "},
    {"data check", "\n.SS data\n", "\n.SS "},
    {"launch", "\n.SS launch\n", "\n.SS "},
};
#define EXPLAINED ((int)(sizeof explained / sizeof *explained))

static char *help_of(const char *command)
{
    char arguments[64];
    snprintf(arguments, sizeof arguments, "help %s", command);
    tool_result result = tool_run(arguments);
    free(result.err);
    return result.out;
}

static char *manual_of(int i)
{
    char *manual = read_manual(), *begin = strstr(manual, explained[i].begin);
    ck_assert_ptr_nonnull(begin);
    begin += strlen(explained[i].begin);
    char *end = strstr(begin, explained[i].end);
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    memmove(manual, begin, (size_t)(end - begin) + 1);
    return manual;
}

/* Calls `check` for each line "  NAME  …" or "  tessera NAME …" of a list of commands, with the
 * command's whole name. Returns how many there were. */
static int each_command(const char *parent, void (*check)(const char *command))
{
    char *help = help_of(parent), words[2][32], name[80], *rest;
    bool listed = false;
    int count = 0;
    /* Uses strtok_r, because `check` uses strtok. */
    for (char *line = strtok_r(help, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        listed = line[0] == ' ' ? listed : strstr(line, "commands:") != NULL;
        if (!listed || strncmp(line, "  ", 2) != 0 || line[2] == ' ')
            continue;
        if (sscanf(line, "  tessera %31[a-z] %31[a-z-]", words[0], words[1]) == 2 &&
            words[1][0] != '-')
            snprintf(name, sizeof name, "%s %s", words[0], words[1]);
        else if (parent[0] == '\0' && sscanf(line, "  %31[a-z]", words[0]) == 1)
            snprintf(name, sizeof name, "%s", words[0]);
        else
            continue;
        check(name);
        count++;
    }
    free(help);
    return count;
}

static void must_be_explained(const char *command)
{
    /* These commands have no options. */
    static const char *const bare[] = {"help", "checkpoint", "checkpoint verify", "data"};
    bool found = false;
    for (int i = 0; i < EXPLAINED; i++)
        found = found || strcmp(command, explained[i].command) == 0;
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++)
        found = found || strcmp(command, bare[i]) == 0;
    ck_assert_msg(found, "'%s' is not compared with the manual", command);
}

/* Checks that the command accepts --json, unless it prints no data, has only one form of output, or
 * talks with a person. */
static void must_print_json(const char *command)
{
    static const char *const others[] = {"chat",
                                         "serve",
                                         "train",
                                         "finetune",
                                         "help",
                                         "launch",
                                         "convert",
                                         "merge",
                                         "quantize",
                                         "tokenize",
                                         "data",
                                         "checkpoint",
                                         "checkpoint verify",
                                         "checkpoint merge",
                                         "bench report"};
    char *help = help_of(command);
    bool excepted = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        excepted = excepted || strcmp(command, others[i]) == 0;
    ck_assert_msg(has_word(help, "--json") != excepted, "%s", command);
    free(help);
}

START_TEST(every_command_is_compared_with_the_manual)
{
    static void (*const checks[])(const char *) = {must_be_explained, must_print_json};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(each_command("", checks[i]), 18);
        ck_assert_int_eq(each_command("bench", checks[i]), 4);
        ck_assert_int_eq(each_command("checkpoint", checks[i]), 3);
        ck_assert_int_eq(each_command("data", checks[i]), 1);
    }
}
END_TEST

/* In the help, options start with two spaces; so do benchmarks and kinds in their lists. */
START_TEST(the_manual_has_the_options_of_help)
{
    char *manual = manual_of(_i), *help = help_of(explained[_i].command), word[64];
    bool listed = false;
    for (char *line = strtok(help, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        listed = line[0] == ' ' ? listed
                                : strcmp(line, "benchmarks:") == 0 || strcmp(line, "kinds:") == 0;
        if ((strncmp(line, "  --", 4) == 0 || (listed && line[2] != ' ')) &&
            sscanf(line, "  %63[a-z0-9-]", word) == 1)
            ck_assert_msg(has_word(manual, word), "%s: %s is not in the manual's part",
                          explained[_i].command, word);
    }
    free(help);
    free(manual);
}
END_TEST

/* The help and the manual have the same letters. The help and the parser use one table of options,
 * so the tool is started only with the letters of the help, and with Q, which no command has. All
 * letters need a value, so the tool does nothing. */
START_TEST(accepted_letters_are_documented)
{
    static const char letters[] = "abcdefgijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char *manual = manual_of(_i), *help = help_of(explained[_i].command);
    char *options = strstr(help, "\noptions:\n");
    ck_assert_ptr_nonnull(options);
    for (const char *letter = letters; *letter != '\0'; letter++) {
        char word[] = {'-', *letter, '\0'}, arguments[64];
        const bool documented = has_word(options, word);
        ck_assert_msg(has_word(manual, word) == documented, "manual, %s: %s", explained[_i].command,
                      word);
        if (!documented && *letter != 'Q')
            continue;
        snprintf(arguments, sizeof arguments, "%s %s", explained[_i].command, word);
        tool_result result = tool_run(arguments);
        ck_assert_int_eq(result.exit_code, 2);
        const bool taken = strstr(result.err, "unknown option") == NULL;
        ck_assert_msg(documented == taken, "help %s: %s", explained[_i].command, word);
        tool_result_free(&result);
    }
    free(help);
    free(manual);
}
END_TEST

/* The manual must have the options that all commands share, and those of the tool itself. */
START_TEST(the_manual_has_the_common_options)
{
    static const char *const words[] = {"--help", "-h", "--version"};
    char *manual = read_manual();
    for (int i = 0; i < 3; i++)
        ck_assert_msg(has_word(manual, words[i]), "%s is not in the manual", words[i]);
    free(manual);
}
END_TEST

START_TEST(the_tool_has_the_options_of_the_manual)
{
    char *manual = read_manual(), *help[EXPLAINED];
    int count = 0;
    for (int i = 0; i < EXPLAINED; i++)
        help[i] = help_of(explained[i].command);
    for (char *at = manual; (at = strstr(at, "--")) != NULL; at += 2) {
        char word[64] = "--";
        bool found = false;
        if (sscanf(at, "--%61[a-z0-9-]", word + 2) != 1 || strcmp(word, "--version") == 0 ||
            strcmp(word, "--help") == 0)
            continue;
        /* In examples, these are options of the example programs. */
        if (strncmp(at, "--epochs 10\n", 12) == 0 || strncmp(at, "--style llama ", 14) == 0 ||
            strncmp(at, "--layers 2 ", 11) == 0 || strncmp(at, "--steps 1000 ", 13) == 0 ||
            strncmp(at, "--learning-rate 0.005\n", 22) == 0)
            continue;
        for (int i = 0; i < EXPLAINED; i++)
            found = found || has_word(help[i], word);
        ck_assert_msg(found, "there is no %s", word);
        count++;
    }
    ck_assert_int_gt(count, 60);
    for (int i = 0; i < EXPLAINED; i++)
        free(help[i]);
    free(manual);
}
END_TEST
#endif

START_TEST(a_full_disk_is_a_failure)
{
    /* A redirection needs a shell, so the test uses system(). */
    int status = system(TEST_TOOL " sample raw --count 1000000000000 >/dev/full 2>/dev/null");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1); /* a tool that goes on takes hours */
    status = system(TEST_TOOL " help >/dev/full 2>/dev/null");
    ck_assert_int_eq(status, 1 << 8);

    /* The error must name the reason, even if the tool writes all of its text with one call. */
    char text[200] = "";
    FILE *pipe = popen(TEST_TOOL " plan " TEST_DATA
                                 "/model/stories260K-f16.gguf --ranks 2 --json 2>&1 >/dev/full",
                       "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, pipe));
    ck_assert_int_eq(pclose(pipe), 1 << 8);
    ck_assert_str_eq(text, "tessera: cannot write to standard output: No space left on device\n");
}
END_TEST

TESTS(usage)
{
    tcase_add_test(tests, prints_its_version);
    tcase_add_test(tests, help_names_every_command);
    tcase_add_loop_test(tests, help_explains_a_command, 0, (int)(sizeof helps / sizeof helps[0]));
    tcase_add_loop_test(tests, help_fits_a_narrow_terminal_without_utf8, 0,
                        (int)(sizeof narrow / sizeof narrow[0]));
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof mistakes[0]));
#if TSR__HAVE_VULKAN
    tcase_add_loop_test(tests, no_device_is_an_empty_list, 0, 2);
#endif
    tcase_add_test(tests, failures_and_mistakes_have_different_exit_codes);
    tcase_add_loop_test(tests, exit_codes_are_the_same_for_all_commands, 0,
                        (int)(sizeof with_files / sizeof *with_files));
#if TEST_HAVE_BENCH && TEST_HAVE_SERVE
    tcase_add_loop_test(tests, the_manual_has_the_options_of_help, 0, EXPLAINED);
    tcase_add_loop_test(tests, accepted_letters_are_documented, 0, EXPLAINED);
    tcase_add_test(tests, every_command_is_compared_with_the_manual);
    tcase_add_test(tests, the_manual_has_the_common_options);
    tcase_add_test(tests, the_tool_has_the_options_of_the_manual);
#endif
    tcase_add_test(tests, a_full_disk_is_a_failure);
}
