/* The command line of digits. */
#ifndef DIGITS_OPTIONS_H
#define DIGITS_OPTIONS_H

#include "tessera/tessera.h"

typedef struct digits_options {
    const char *csv, *device;
    const char *load, *save, *save_init, *log, *curve; /* paths of files; NULL: not given */
    int ranks;                                         /* 0: as many as were launched */
    int data, tensor;     /* the grid: data-parallel × tensor-parallel ranks; 0: not set */
    const char *strategy; /* the sharding strategy of data-parallel ranks; "none": each has all
                             parameters */
    int hidden, epochs, batch, workers;
    int64_t seed;
    tsr_dtype dtype;
    double learning_rate, weight_decay;
    double timeout_seconds;
    bool help;
} digits_options;

/* Returns false, with a message on standard error, if something is wrong. */
bool digits_options_parse(int argc, char **argv, digits_options *out);
void digits_options_help(void);

#endif
