/* The command line of feedforward. */
#ifndef FEEDFORWARD_OPTIONS_H
#define FEEDFORWARD_OPTIONS_H

#include "tessera/tessera.h"

typedef struct feedforward_options {
    const char *file, *device;
    bool generate, help;
    int tokens, runs;
    int width, hidden; /* of what is generated */
    tsr_dtype dtype;
} feedforward_options;

/* False, with a sentence on stderr, when something is wrong. */
bool feedforward_options_parse(int argc, char **argv, feedforward_options *out);
void feedforward_options_help(void);

#endif
