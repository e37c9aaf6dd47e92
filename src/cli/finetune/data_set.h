/* The inside of a data set.
 *
 *     data_open.c   reads and indexes the files
 *     data_pack.c   the order of documents in an epoch, and how they are packed into rows
 *     data_batch.c  the tokens of rows */
#ifndef TSR_CLI_FINETUNE_DATA_SET_H
#define TSR_CLI_FINETUNE_DATA_SET_H

#include "cli/finetune/data.h"
#include "cli/finetune/data_document.h"

/* A document, a piece of a divided one, or a pair. Pieces of a document follow each other and have
 * the same offset. */
typedef struct data_entry {
    uint64_t offset;  /* of its line in the file */
    uint32_t inputs;  /* tokens of a row that it takes; of a pair: the longer one's */
    uint32_t trained; /* tokens with a loss */
} data_entry;

/* A file's documents on one side: entries first … first + count − 1. */
typedef struct data_source {
    const char *path;
    double weight;
    uint64_t first, count;
    uint64_t per_epoch; /* how many of them an epoch has */
    data_lines lines;
} data_source;

/* Rows of one window of an epoch's documents, in the order in which they are used. */
typedef struct data_window {
    int64_t epoch;
    uint64_t number; /* of the window; UINT64_MAX: none */
    uint64_t rows;
    uint64_t *first;   /* [rows + 1]: where a row's entries begin in `entries` */
    uint64_t *entries; /* the numbers of documents' entries */
} data_window;

typedef struct data_side {
    bool held_out;
    data_entry *entries;
    uint64_t count, capacity;
    data_source *sources;
    int source_count;
    data_counts counts;
    uint64_t problems[DATA_PROBLEM_KINDS];
    uint64_t items; /* documents of an epoch */
    /* The first row of each epoch whose rows have been counted, and of the one after them. */
    int64_t *epoch_first;
    int64_t epochs, epoch_capacity;
    /* of one epoch: the number of its rows before each window */
    int64_t counted_epoch;
    uint64_t *rows_before; /* [windows + 1] */
    uint64_t windows;
    data_window window; /* the last one that was packed */
} data_side;

struct data_set {
    data_options options; /* without its arrays and strings */
    data_form form;
    data_side side[2];
    /* the line that was read last */
    data_document line[2];
    const data_source *line_source;
    uint64_t line_offset;
};

/* data_open.c */

/* Returns the source of an entry. */
data_source *data_source_of(data_side *side, uint64_t entry);

/* data_pack.c */

/* Sets per_epoch and items. Returns an exit status. */
int data_order_init(data_set *set, data_side *side);
void data_order_free(data_side *side);
/* Finds row `row` of the endless sequence of rows: its entries are entries[0 … count − 1]. Sets
 * *count to 0 for rows that a held-out part does not have. */
int data_row_find(data_set *set, data_side *side, int64_t row, const uint64_t **entries,
                  uint64_t *count, int64_t *epoch);

#endif
