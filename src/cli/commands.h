/* The commands of the tool. */
#ifndef TSR_CLI_COMMANDS_H
#define TSR_CLI_COMMANDS_H

#include "cli/lib/command.h"

extern const cli_command cli_chat;
extern const cli_command cli_checkpoint;
extern const cli_command cli_convert;
extern const cli_command cli_data;
extern const cli_command cli_devices;
extern const cli_command cli_bench;
extern const cli_command cli_sample;
extern const cli_command cli_serve;
extern const cli_command cli_finetune;
extern const cli_command cli_generate;
extern const cli_command cli_info;
extern const cli_command cli_launch;
extern const cli_command cli_merge;
extern const cli_command cli_plan;
extern const cli_command cli_quantize;
extern const cli_command cli_tokenize;
extern const cli_command cli_train;
extern const cli_command cli_help;

/* All commands, in the order of `tessera help`, ending with NULL. */
extern const cli_command *const cli_commands[];
const cli_command *cli_command_find(const char *name);
/* Refuses a name that no command has, and suggests the nearest one. `who` starts the sentence, such
 * as "help: ". Returns CLI_USAGE. */
int cli_command_unknown(const char *who, const char *name);
/* Returns the subcommand of `command` that has this name: for "report", this is "bench report".
 * Returns NULL if there is none. */
const cli_command *cli_command_subcommand(const cli_command *command, const char *word);

#endif
