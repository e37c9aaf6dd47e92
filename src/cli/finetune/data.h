/* Training data: rows of tokens from files. */
#ifndef TSR_CLI_FINETUNE_DATA_H
#define TSR_CLI_FINETUNE_DATA_H

#include "cli/training/rows.h"
#include "tessera/tessera.h"

typedef struct data_set data_set; /* files that data_open has indexed */

typedef struct data_options {
    const char *const *files; /* [file_count] .jsonl/.json/.ndjson: JSONL; everything else: plain
                                 text, one document a file */
    const double *weights;    /* [file_count]: how often an epoch has each document of the file: 0.5
                                 half of them, another half in the next epoch; NULL: 1 */
    int file_count;
    const char *held_out_file; /* NULL: none */
    double held_out; /* 0 to 0.5: part of the documents of `files` that is held out; chosen by their
                        contents and the seed, so that equal documents are on one side */
    int64_t context; /* tokens of a row: inputs. A document of n tokens takes n − 1 of them */
    uint64_t seed;
    bool pairs;       /* lines are preference pairs (DPO) */
    bool loss_on_all; /* all tokens of messages and prompts are trained, not only replies */
    bool skip_bad;    /* leave out bad lines instead of failing */
    bool cut; /* cut conversations that are longer than the context instead of taking them for bad
                 (text is always divided) */
    bool unpacked; /* one document a row, padded */
    bool unshuffled;
    bool quiet; /* name no bad lines, as for ranks other than the first */
} data_options;

typedef struct data_counts { /* of one part */
    uint64_t lines, documents, bad, empty, cut, divided, tokens,
        trained;       /* trained: tokens with a label, of all documents once */
    uint64_t lost;     /* tokens that were cut off */
    uint64_t weighted; /* documents with weights other than 0 and 1 */
} data_counts;

/* Reads and indexes all files (8 + 8 bytes a document stay in memory, not its tokens), and checks
 * every line. */
int data_open(const data_options *options, const tsr_tokenizer *tokenizer, tsr_chat_format format,
              data_set **out);
void data_close(data_set **set);
void data_get_counts(const data_set *set, data_part part, data_counts *out);
/* Rows of epoch `epoch` (DATA_HELD_OUT: always the same). Pairs: a pair is two rows, chosen and
 * rejected, one after the other: rows are even. */
int data_rows(data_set *set, data_part part, int64_t epoch, int64_t *out);

/* Rows first … first + count − 1 of the endless sequence of rows: those of epoch 0, then those of
 * epoch 1, … The rows of step s with B rows a step are s · B … s · B + B − 1; each data-parallel
 * rank asks for its own range of them (any number of ranks: the rows are the same). DATA_HELD_OUT:
 * rows from data_rows on are padding without labels. */
int data_get_batch(data_set *set, data_part part, int64_t first, int64_t count, data_batch *out);
/* The number of labels of these rows, from the index alone: for the scale of a step whose other
 * rows other ranks have. */
int data_count_labels(data_set *set, data_part part, int64_t first, int64_t count, int64_t *out);

/* Returns the tokens of a row without --context: as many as the model was made for, but at most
 * 1024. NULL: the model is not known. */
int64_t data_usual_context(const tsr_model_config *config);

#endif
