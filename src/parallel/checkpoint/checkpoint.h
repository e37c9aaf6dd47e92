/* The inside of checkpoints.
 *
 *     entry.c     what the caller gives, checked
 *     agree.c     ranks: one failure is everybody's; who writes what
 *     layout.c    where tensors are in a file, and its header
 *     checksum.c  checksums of tensors that ranks write or read in parts
 *     transfer.c  between a rank's part and its places in a file
 *     save.c, load.c, metadata.c
 *     training.c  files with optimizer state: what FSDP models and optimizers have in common
 */
#ifndef TSR_PARALLEL_CHECKPOINT_H
#define TSR_PARALLEL_CHECKPOINT_H

#include "base/error.h"
#include "tessera/checkpoint.h"

/* Ranks wait for each other's disks. */
#define TSR__CHECKPOINT_PATIENCE_NS UINT64_C(600000000000)

/* entry.c ---------------------------------------------------------------------------------------
 */

/* The part of an entry, in elements: `outer` rows of which each is `row` of the whole's `whole_row`
 * elements, from `start` on. */
typedef struct tsr__checkpoint_part {
    uint64_t outer, row, whole_row, start;
} tsr__checkpoint_part;

/* Everything about the caller's arguments that one rank can know. `who` begins the error texts;
 * without `saving`, the entries' memory is going to be written. */
tsr_status tsr__checkpoint_check(const char *who, const char *path, const tsr_stream *stream,
                                 bool saving, int count,
                                 const tsr_checkpoint_entry *entries) TSR_NODISCARD;
/* Of an entry that has been checked. */
tsr__checkpoint_part tsr__checkpoint_part_of(const tsr_checkpoint_entry *entry);
/* Bytes of an element, and what its dtype is called: f64, too, which no tensor holds. */
static inline uint64_t tsr__checkpoint_width(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? 8 : tsr_dtype_size(dtype);
}
static inline const char *tsr__checkpoint_dtype(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? "f64" : tsr_dtype_name(dtype);
}
/* Elements of the whole. */
uint64_t tsr__checkpoint_elements(const tsr_checkpoint_entry *entry);
/* Size of the divided dimension, and the part's place in it. */
void tsr__checkpoint_along(const tsr_checkpoint_entry *entry, uint64_t *size, uint64_t *offset,
                           uint64_t *length);

/* Entries in the byte order of their names: a permutation, which the caller frees. */
tsr_status tsr__checkpoint_sort(int count, const tsr_checkpoint_entry *entries,
                                int **out) TSR_NODISCARD;

/* agree.c ---------------------------------------------------------------------------------------
 */

/* All ranks call it with how they fared: the failure of the lowest rank that has one, with its text
 * and the rank's number, on all of them. `comm` may be NULL. */
tsr_status tsr__checkpoint_agree(tsr_comm *comm, const char *who, tsr_status mine) TSR_NODISCARD;

/* That what `hash` has been made of is the same on all ranks; `what` names it. */
tsr_status tsr__checkpoint_same(tsr_comm *comm, const char *who, const char *what,
                                uint64_t hash) TSR_NODISCARD;

/* That all ranks' parts make up the whole of each entry, and which of them this rank writes:
 * mine[count]. */
tsr_status tsr__checkpoint_divide(tsr_comm *comm, const char *who, int count,
                                  const tsr_checkpoint_entry *entries, bool *mine) TSR_NODISCARD;

/* The same for reading, where parts need not make up the whole. complete[count]: they do, in the
 * entries of all ranks; and mine[count]: this rank's part counts among them. Every rank gives all
 * tensors of the file, in the same order, with a count of 0 for those that it does not read. */
tsr_status tsr__checkpoint_cover(tsr_comm *comm, const char *who, int count,
                                 const tsr_checkpoint_entry *entries, bool *mine,
                                 bool *complete) TSR_NODISCARD;

/* states[count] = the exclusive or over all ranks. */
tsr_status tsr__checkpoint_combine(tsr_comm *comm, const char *who, int count,
                                   uint32_t *states) TSR_NODISCARD;

/* layout.c --------------------------------------------------------------------------------------
 */

typedef struct tsr__checkpoint_layout {
    char *header;          /* the length, the JSON, and spaces up to a multiple of 8 */
    uint64_t header_bytes; /* of all that */
    uint64_t size_bytes;   /* of the file */
    uint64_t *at_bytes;    /* [count]: where each entry starts in the file */
    int *order;            /* [count]: the entries in the order of the file */
} tsr__checkpoint_layout;

/* With `checksums`, the header has room for them, filled with zeros. */
tsr_status tsr__checkpoint_lay_out(const char *who, int count, const tsr_checkpoint_entry *entries,
                                   const char *const *metadata, bool checksums,
                                   tsr__checkpoint_layout *out) TSR_NODISCARD;
void tsr__checkpoint_layout_finish(tsr__checkpoint_layout *layout);

/* checksum.c ------------------------------------------------------------------------------------
 *
 * A file's metadata has one text of hexadecimal digits: 8 for the CRC-32C of the header, up to the
 * first tensor's data and with '0' in place of these digits, and then 8 for the CRC-32C of each
 * tensor's data, in the order in which the header names the tensors.
 */
#define TSR__CHECKSUM_KEY "tessera.crc32c"

/* The checksum of a tensor, from ranges of it in any order. */
typedef struct tsr__checksum {
    uint64_t at_bytes, size_bytes; /* of the tensor in its file */
    uint32_t sum;                  /* of the ranges before */
    uint32_t range;                /* and of the present range, */
    uint64_t end;                  /* which ends here in the tensor */
} tsr__checksum;
void tsr__checksum_add(tsr__checksum *checksum, uint64_t at_bytes, uint64_t size, const void *data);
/* The state (base/crc32c.h) of the tensor with zeros outside these ranges. */
uint32_t tsr__checksum_state(const tsr__checksum *checksum);

/* Puts the tensors' checksums and its own into a header that has room for them. `tensors` are in
 * the order of the header. */
void tsr__checksums_write(char *header, uint64_t header_bytes, int count, const uint32_t *tensors);
/* Reads those of a header, which begins with its length. *out NULL: it has none. The array is the
 * caller's. Errors: TSR_ERR_INVALID for a header that is not what was written. */
tsr_status tsr__checksums_read(const char *header, uint64_t header_bytes, uint64_t count,
                               uint32_t **out) TSR_NODISCARD;

/* transfer.c ------------------------------------------------------------------------------------
 */

/* Bytes at `at` of a file, in or out. */
typedef tsr_status (*tsr__checkpoint_move_fn)(void *file, uint64_t at_bytes, uint64_t size_bytes,
                                              void *data);

/* Calls `move` for everything this rank has of an entry that starts at `at_bytes` of a file;
 * `saving` says which way. */
tsr_status tsr__checkpoint_transfer(tsr_stream *stream, const tsr_checkpoint_entry *entry,
                                    uint64_t at_bytes, bool saving, tsr__checkpoint_move_fn move,
                                    void *file) TSR_NODISCARD;

/* training.c ------------------------------------------------------------------------------------
 */

/* Entries and the names that were made for them. Starts zeroed. */
typedef struct tsr__training_list {
    tsr_checkpoint_entry *items;
    char **names; /* "optimizer.moment1.NAME", … */
    size_t count, capacity, name_count, name_capacity;
} tsr__training_list;
void tsr__training_list_finish(tsr__training_list *list);
/* `entry`, whose name must live as long as the list. */
tsr_status tsr__training_add(tsr__training_list *list,
                             const tsr_checkpoint_entry *entry) TSR_NODISCARD;
/* State of the parameter that `entry` describes: f32 in `tensor`, named "optimizer.WHAT.NAME". NULL
 * adds nothing. */
tsr_status tsr__training_add_state(tsr__training_list *list, const tsr_checkpoint_entry *entry,
                                   const char *what, tsr_tensor *tensor) TSR_NODISCARD;

/* A file of parameters and, unless `model_only`, of state and the number of steps. */
typedef struct tsr__training_file {
    const char *who; /* begins the error texts */
    const char *path;
    tsr_comm *world;
    tsr_stream *stream;
    bool model_only;
    int64_t steps;
} tsr__training_file;
/* All ranks call these, each with the status of its preparations: if one failed, all fail.
 * `metadata` is the caller's, as in tsr_checkpoint_params. Loading sets file->steps. */
tsr_status tsr__training_save(const tsr__training_file *file, tsr_status prepared,
                              const tsr__training_list *list,
                              const char *const *metadata) TSR_NODISCARD;
tsr_status tsr__training_load(tsr__training_file *file, tsr_status prepared,
                              const tsr__training_list *list) TSR_NODISCARD;

#endif
