/* The command line of feedforward. */
#ifndef FEEDFORWARD_OPTIONS_H
#define FEEDFORWARD_OPTIONS_H

#include "tessera/tessera.h"

typedef struct feedforward_options {
    const char *file, *device;
    bool generate, help;
    int tokens, runs;
    int width, hidden; /* the sizes of the block that --generate writes */
    tsr_dtype dtype;
} feedforward_options;

/* Returns false, with a message on standard error, if something is wrong. */
bool feedforward_options_parse(int argc, char **argv, feedforward_options *out);
void feedforward_options_help(void);

#endif
