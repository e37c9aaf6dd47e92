/* tessera checkpoint: shows, verifies and merges the files of checkpoints. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/checkpoint_model.h"
#include "cli/commands.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/lib/text.h"
#include "tessera/checkpoint_files.h"
#include "tool_seam.h"

#define ABOUT_PATHS                                                                                \
    "PATH is the name of a checkpoint in parts, such as FOLDER/model, its index, or one file. "    \
    "Several paths give the folders in which its parts are.\n"

static int open_paths(const char *command, int count, const char *const *paths,
                      tsr_checkpoint_files **out)
{
    if (count == 0)
        return cli_usage_error("%s: missing PATH", command);
    return tsr_checkpoint_files_open(count, paths, out) == TSR_OK
               ? CLI_DONE
               : cli_failed_in(command, tsr_last_error());
}

/* Reads the arguments, and opens the files. */
static int open_files(const char *command, const cli_option *options, int argc, char **argv,
                      tsr_checkpoint_files **out)
{
    int count;
    const char **paths = cli_alloc((size_t)argc, sizeof *paths);
    int code = cli_options_read(command, options, argc, argv, argc, paths, &count);
    if (code == CLI_DONE)
        code = open_paths(command, count, paths, out);
    free((void *)paths);
    return code;
}

/* Show ----------------------------------------------------------------------------------------- */

static bool json;

static const cli_option show_options[] = {
    {"json", NULL, "print JSON", .flag = &json},
    {0},
};

static const char *dtype_name(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? "f64" : tsr_dtype_name(dtype);
}

static void print_metadata(const tsr_checkpoint_summary *summary)
{
    for (int i = 0; summary->metadata[i] != NULL; i += 2) {
        char *text = strdup(summary->metadata[i + 1]);
        if (text != NULL)
            cli_line(stdout, "%s: %s", summary->metadata[i], cli_text_mend(text));
        free(text);
    }
}

static void print_parts(const tsr_checkpoint_files *files)
{
    const tsr_checkpoint_part *part;
    char bytes[CLI_BYTES_TEXT];
    cli_table *table = cli_table_create();
    cli_table_column(table, "part", CLI_RIGHT);
    cli_table_column(table, "tensors", CLI_RIGHT);
    cli_table_column(table, "size", CLI_RIGHT);
    cli_table_column(table, "checksums", CLI_LEFT);
    cli_table_column(table, "file", CLI_LEFT);
    for (int i = 0; (part = tsr_checkpoint_files_part(files, i)) != NULL; i++) {
        cli_table_cell(table, "%d", i + 1);
        cli_table_cell(table, "%" PRIu64, part->slice_count);
        cli_table_cell(table, "%s", part->path != NULL ? cli_bytes(part->size_bytes, bytes) : "-");
        cli_table_cell(table, "%s", part->path == NULL ? "-" : part->has_checksums ? "yes" : "no");
        cli_table_cell(table, "%s", part->path != NULL ? part->path : "missing");
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

/* Returns a slice. Indexes are correct, so there is always one. */
static tsr_checkpoint_slice slice_of(const tsr_checkpoint_files *files, uint64_t tensor,
                                     uint64_t index)
{
    tsr_checkpoint_slice slice = TSR_INIT(tsr_checkpoint_slice);
    if (tsr_checkpoint_files_get_slice(files, tensor, index, &slice) != TSR_OK)
        abort();
    return slice;
}

/* Prints which files of the checkpoint have which slices of a tensor: "1[0:3] 2[3:6]" means that
 * file 1 has the slice [0:3] and file 2 the slice [3:6]. */
static void print_slices(cli_table *table, const tsr_checkpoint_files *files, uint64_t tensor,
                         uint64_t count)
{
    enum { MOST = 8 };
    char text[MOST * (TSR_CHECKPOINT_SLICE_TEXT + 16)] = "";
    size_t length = 0;
    if (count > MOST) {
        cli_table_cell(table, "%" PRIu64 " slices", count);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const tsr_checkpoint_slice slice = slice_of(files, tensor, i);
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%d%s", i > 0 ? " " : "",
                                   slice.part + 1, slice.text);
    }
    cli_table_cell(table, "%s", text);
}

static void print_tensors(const tsr_checkpoint_files *files)
{
    const tsr_checkpoint_tensor *tensor;
    char shape[TSR__SHAPE_TEXT];
    cli_table *table = cli_table_create();
    cli_table_column(table, "tensor", CLI_LEFT);
    cli_table_column(table, "dtype", CLI_LEFT);
    cli_table_column(table, "shape", CLI_LEFT);
    cli_table_column(table, "parts", CLI_LEFT);
    for (uint64_t i = 0; (tensor = tsr_checkpoint_files_tensor(files, i)) != NULL; i++) {
        cli_table_cell(table, "%s", tensor->name);
        cli_table_cell(table, "%s", dtype_name(tensor->dtype));
        cli_table_cell(table, "%s",
                       tsr__shape_format(tensor->ndim, tensor->shape, shape, sizeof shape));
        print_slices(table, files, i, tensor->slice_count);
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

static void print_text(const tsr_checkpoint_files *files)
{
    const tsr_checkpoint_summary *summary = tsr_checkpoint_files_summary(files);
    if (summary->id[0] != '\0')
        cli_line(stdout, "checkpoint %s, generation %" PRIu64, summary->id, summary->generation);
    if (summary->missing != NULL)
        cli_line(stdout, "incomplete: %s", summary->missing);
    print_metadata(summary);
    putchar('\n');
    print_parts(files);
    putchar('\n');
    print_tensors(files);
}

static void add_tensor(json_t *tensors, const tsr_checkpoint_files *files, uint64_t index)
{
    const tsr_checkpoint_tensor *tensor = tsr_checkpoint_files_tensor(files, index);
    json_t *object = cli_json_append_object(tensors);
    cli_json_text(object, "name", tensor->name);
    cli_json_text(object, "dtype", dtype_name(tensor->dtype));
    json_t *shape = cli_json_add_array(object, "shape");
    for (int d = 0; d < tensor->ndim; d++)
        cli_json_append(shape, json_integer(tensor->shape[d]));
    json_t *slices = cli_json_add_array(object, "slices");
    for (uint64_t i = 0; i < tensor->slice_count; i++) {
        const tsr_checkpoint_slice slice = slice_of(files, index, i);
        json_t *one = cli_json_append_object(slices);
        cli_json_u64(one, "part", (uint64_t)slice.part + 1);
        cli_json_u64(one, "dim", (uint64_t)slice.dim);
        cli_json_u64(one, "offset", (uint64_t)slice.offset);
        cli_json_u64(one, "length", (uint64_t)slice.length);
        cli_json_u64(one, "first", slice.first);
        cli_json_u64(one, "count", slice.count);
    }
}

static void print_json(const tsr_checkpoint_files *files)
{
    const tsr_checkpoint_summary *summary = tsr_checkpoint_files_summary(files);
    const tsr_checkpoint_part *part;
    json_t *document = cli_json_document("tessera.checkpoint", 1);
    cli_json_text(document, "checkpoint", summary->id);
    cli_json_u64(document, "generation", summary->generation);
    cli_json_bool(document, "complete", summary->missing == NULL);
    json_t *metadata = cli_json_add_object(document, "metadata");
    for (int i = 0; summary->metadata[i] != NULL; i += 2)
        cli_json_text(metadata, summary->metadata[i], summary->metadata[i + 1]);
    json_t *parts = cli_json_add_array(document, "parts");
    for (int i = 0; (part = tsr_checkpoint_files_part(files, i)) != NULL; i++) {
        json_t *object = cli_json_append_object(parts);
        if (part->path == NULL) {
            cli_json_null(object, "file");
            continue;
        }
        cli_json_text(object, "file", part->path);
        cli_json_u64(object, "bytes", part->size_bytes);
        cli_json_bool(object, "checksums", part->has_checksums);
    }
    json_t *tensors = cli_json_add_array(document, "tensors");
    for (uint64_t i = 0; i < summary->tensor_count; i++)
        add_tensor(tensors, files, i);
    cli_json_print(document);
}

static int run_show(int argc, char **argv)
{
    tsr_checkpoint_files *files = NULL;
    int count;
    const char **paths = cli_alloc((size_t)argc, sizeof *paths);
    int code = cli_options_read("checkpoint show", show_options, argc, argv, argc, paths, &count);
    if (code == CLI_DONE && count == 1 && checkpoint_is_model(paths[0])) {
        code = checkpoint_show_model(paths[0], json);
        free((void *)paths);
        return code;
    }
    if (code == CLI_DONE)
        code = open_paths("checkpoint show", count, paths, &files);
    free((void *)paths);
    if (code != CLI_DONE)
        return code;
    if (json)
        print_json(files);
    else
        print_text(files);
    tsr_checkpoint_files_close(&files);
    return CLI_DONE;
}

static void help_show(FILE *out)
{
    cli_wrap(out, "Prints the metadata, parts and tensors of a checkpoint, from the headers of its "
                  "files. Parts that are missing are named. " ABOUT_PATHS
                  "PATH may also be a model: a GGUF file, or a folder with a config.json. Then its "
                  "sizes and its tensors are printed.\n");
    cli_options_help(out, show_options);
}

static const cli_command show_command = {
    .name = "checkpoint show",
    .usage = "PATH... [--json]",
    .summary = "print what a checkpoint holds",
    .run = run_show,
    .help = help_show,
};

/* Verify --------------------------------------------------------------------------------------- */

static const cli_option verify_options[] = {{0}};

static int run_verify(int argc, char **argv)
{
    tsr_checkpoint_files *files = NULL;
    int code = open_files("checkpoint verify", verify_options, argc, argv, &files);
    if (code != CLI_DONE)
        return code;
    const tsr_checkpoint_summary *summary = tsr_checkpoint_files_summary(files);
    int without = 0;
    for (int i = 0; i < summary->part_count; i++)
        without += !tsr_checkpoint_files_part(files, i)->has_checksums;
    if (tsr_checkpoint_files_verify(files) != TSR_OK)
        code = cli_failed_in("checkpoint verify", tsr_last_error());
    else {
        cli_line(stdout, "%" PRIu64 " tensor%s in %d part%s: complete%s", summary->tensor_count,
                 CLI_PLURAL(summary->tensor_count), summary->part_count,
                 CLI_PLURAL(summary->part_count), without == 0 ? ", all checksums match" : "");
        if (without > 0)
            cli_line(stdout, "%d part%s no checksums", without, without == 1 ? " has" : "s have");
    }
    tsr_checkpoint_files_close(&files);
    return code;
}

static void help_verify(FILE *out)
{
    cli_wrap(out,
             "Checks that all parts of a checkpoint are there, that they have every element of "
             "every tensor exactly once, and that the data have their checksums. The exit "
             "status is 1 if something is wrong, which a message names. " ABOUT_PATHS);
}

static const cli_command verify_command = {
    .name = "checkpoint verify",
    .usage = "PATH...",
    .summary = "check that a checkpoint is complete and intact",
    .run = run_verify,
    .help = help_verify,
};

/* Merge ---------------------------------------------------------------------------------------- */

static const char *output;
static bool force;

static const cli_option merge_options[] = {
    {"output", "FILE", "the file to write, in safetensors format", .text = &output, .letter = 'o'},
    {"force", NULL, "replace FILE if it exists", .flag = &force},
    {0},
};

#define EXIT_INTERRUPTED 130 /* the exit code of shells for a program that SIGINT has ended */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static bool goes_on(void)
{
    return interrupted == 0;
}

/* Merges, or stops at a signal that would end the tool before it has removed its temporary file. */
static int merge(const tsr_checkpoint_files *files)
{
    const struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    if (tsr__checkpoint_files_merge(files, output, goes_on) == TSR_OK)
        return CLI_DONE;
    return interrupted != 0 ? EXIT_INTERRUPTED
                            : cli_failed_in("checkpoint merge", tsr_last_error());
}

static int run_merge(int argc, char **argv)
{
    tsr_checkpoint_files *files = NULL;
    int code = open_files("checkpoint merge", merge_options, argc, argv, &files);
    if (code == CLI_DONE && output == NULL)
        code = cli_usage_error("checkpoint merge: missing --output FILE");
    if (code == CLI_DONE && !force && access(output, F_OK) == 0)
        code = cli_failed("checkpoint merge: %s exists; --force replaces it", output);
    if (code == CLI_DONE)
        code = merge(files);
    if (code == CLI_DONE) {
        const uint64_t count = tsr_checkpoint_files_summary(files)->tensor_count;
        cli_line(stdout, "%s: %" PRIu64 " tensor%s", output, count, CLI_PLURAL(count));
    }
    tsr_checkpoint_files_close(&files);
    return code;
}

static void help_merge(FILE *out)
{
    cli_wrap(out,
             "Writes the parts of a checkpoint to one file with full tensors, after the checks "
             "of 'tessera checkpoint verify'. The file is written under a temporary name and "
             "renamed at the end; Ctrl-C removes it. " ABOUT_PATHS);
    cli_options_help(out, merge_options);
}

static const cli_command merge_command = {
    .name = "checkpoint merge",
    .usage = "PATH... --output FILE [--force]",
    .summary = "write a checkpoint to one file",
    .run = run_merge,
    .help = help_merge,
};

/* The command ---------------------------------------------------------------------------------- */

static const cli_command *const subcommands[] = {&show_command, &verify_command, &merge_command,
                                                 NULL};

static int run(int argc, char **argv)
{
    if (argc > 1)
        return cli_usage_error("checkpoint: unknown command '%s'; it is show, verify or merge",
                               argv[1]);
    return cli_usage_error("checkpoint: missing show, verify or merge");
}

static void help(FILE *out)
{
    char line[256];
    cli_wrap(out, "Looks at the files of a checkpoint, which may be one file or the parts that the "
                  "ranks of several hosts have written.\n\n");
    fputs("commands:\n", out);
    for (int i = 0; subcommands[i] != NULL; i++) {
        snprintf(line, sizeof line, "  tessera %-17s  %s\n", subcommands[i]->name,
                 subcommands[i]->summary);
        cli_wrap(out, line);
    }
}

const cli_command cli_checkpoint = {
    .name = "checkpoint",
    .usage = "show|verify|merge PATH... [options]",
    .summary = "show, verify or merge the files of a checkpoint",
    .run = run,
    .help = help,
    .subcommands = subcommands,
};
