/* Checkpoints in parts: each rank writes a file of its own, into its own host's folder.
 *
 *     part_name.c   names of files
 *     part.c        the header of one part: writing and reading it
 *     part_find.c   which parts the ranks see, and which of them make up a checkpoint
 *     part_table.c  the tensors of a checkpoint, and which slices make up each of them
 *     part_read.c   reading slices chunk by chunk, with checksums
 *     part_save.c   saves a checkpoint in parts
 *     part_load.c   loads a checkpoint in parts; ranks send each other the elements they need
 *     files.c       the public functions that look at the files of a checkpoint
 *
 * A file holds slices. A slice is the region that one rank has of a tensor: a range of the
 * elements, in row-major order, of a block, which is a range along one dimension (tsr__region). A
 * slice with all elements of its block is stored with the block's shape, any other slice with one
 * dimension. A slice that is the full tensor has the tensor's name; any other slice has a name such
 * as "x[:,4:8]" or "x[0:4].flat[6:9]", and the metadata "tessera.part" say which tensor it belongs
 * to.
 *
 * Saving never damages the previous checkpoint. Each save has a random identity and a generation,
 * one more than any that the ranks see. All ranks write and synchronise temporary files. When all
 * have succeeded, each renames its part of the old checkpoint to NAME.previous, and its temporary
 * file to NAME. When all have done that, they remove what is old. So no folder loses its parts of
 * the old checkpoint before every folder holds its parts of the new one. Loading takes the newest
 * generation of which the ranks together see all parts. If an earlier save was interrupted, the
 * next one first gives the parts of this generation their names back. */
#ifndef TSR_PARALLEL_CHECKPOINT_PARTS_H
#define TSR_PARALLEL_CHECKPOINT_PARTS_H

#include "parallel/checkpoint/checkpoint.h"
#include "shard/formats/readers.h"
#include "tessera/checkpoint_files.h"

#define TSR__PART_KEY "tessera.part"
#define TSR__PART_ID 33      /* bytes of an identity as text: 32 hexadecimal digits and a zero */
#define TSR__PARTS_MAX 99999 /* parts; their numbers have five digits */
#define TSR__PART_CHUNK_BYTES (UINT64_C(1) << 20)

/* part_name.c -------------------------------------------------------------------------------- */

/* The folder and the NAME of a checkpoint. */
typedef struct tsr__part_place {
    char *folder; /* "" or ends with '/' */
    char *stem;
} tsr__part_place;
/* Splits a path. The ending ".safetensors" or ".safetensors.index.json" is left out. */
tsr_status tsr__part_place_init(const char *who, const char *path,
                                tsr__part_place *out) TSR_NODISCARD;
void tsr__part_place_finish(tsr__part_place *place);
/* These return the path of a part, with `ending` appended, and the path of the index. The caller
 * must free it. NULL: no memory. */
char *tsr__part_path(const tsr__part_place *place, int number, int of, const char *ending);
char *tsr__part_index_path(const tsr__part_place *place);

typedef enum tsr__part_kind {
    TSR__PART_NONE,     /* not the name of a part */
    TSR__PART_CURRENT,  /* NAME-00001-of-00002.safetensors */
    TSR__PART_PREVIOUS, /* with ".previous" appended */
    TSR__PART_PARTIAL   /* with ".partial" appended, or a temporary index */
} tsr__part_kind;
/* Returns the kind of a file by its name. A stem of NULL stands for any stem. */
tsr__part_kind tsr__part_name_kind(const char *stem, const char *file);

/* part.c ------------------------------------------------------------------------------------- */

typedef struct tsr__part_id {
    char id[TSR__PART_ID];
    uint64_t generation;
    int number, of; /* the number of this part, from 1 on, and the number of all parts */
} tsr__part_id;

/* A slice in a file. */
typedef struct tsr__slice {
    tsr_checkpoint_entry of; /* the tensor and the region; no memory */
    uint64_t at_bytes, size_bytes;
    uint32_t sum; /* the checksum of the slice, if the part has checksums */
    int part;     /* the index of the part that has the slice */
} tsr__slice;

typedef struct tsr__part {
    tsr__part_id id; /* a file that is no part has "" and is part 1 of 1 */
    tsr__slice *slices;
    size_t count;
    bool has_checksums;
    uint64_t hash; /* a hash of the header */
    uint64_t header_bytes, size_bytes;
    tsr__metadata metadata; /* all pairs of the header */
    char **names;           /* [count]: owned names; the entries of slices refer to them */
} tsr__part;

/* Reads a part from its header and the size of its file. The header may be hostile: everything in
 * it is checked. On failure, too, the part must be finished. */
tsr_status tsr__part_parse(const char *header, uint64_t header_bytes, uint64_t file_bytes,
                           tsr__part *out) TSR_NODISCARD;
/* Loads the header of a file. *out must be freed. */
tsr_status tsr__part_load_header(const char *path, char **out, uint64_t *header_bytes,
                                 uint64_t *file_bytes) TSR_NODISCARD;
void tsr__part_finish(tsr__part *part);

/* Writes what follows the tensor's name in the name of a slice, in the notation of NumPy; "" for a
 * full tensor. */
void tsr__slice_name_region(const tsr_checkpoint_entry *entry,
                            char text[TSR_CHECKPOINT_SLICE_TEXT]);
/* Sets *out to the tensor that a part stores for an entry: it has the name and the shape of the
 * slice, and the dtype and memory of the entry. *out owns its name. */
tsr_status tsr__slice_stored(const char *who, const tsr_checkpoint_entry *entry,
                             tsr_checkpoint_entry *out) TSR_NODISCARD;
/* Returns the text of the metadata TSR__PART_KEY, which the caller must free. NULL: no memory.
 * stored[i] is what is stored for entries[i]. */
char *tsr__part_describe(const tsr__part_id *id, int count, const tsr_checkpoint_entry *entries,
                         const tsr_checkpoint_entry *stored);

/* part_find.c -------------------------------------------------------------------------------- */

/* A part that this rank sees. */
typedef struct tsr__seen {
    tsr__part_id id;
    uint64_t hash;
    char *path;
    bool previous;
} tsr__seen;
/* The parts that this rank sees. */
typedef struct tsr__view {
    tsr__seen *items;
    size_t count, capacity;
    tsr__error problem; /* the error of the first part that cannot be read; "" if there is none */
} tsr__view;
/* Adds all parts in a folder that have the NAME `stem`, including those that end in ".previous". */
tsr_status tsr__view_add_folder(const char *folder, const char *stem,
                                tsr__view *view) TSR_NODISCARD;
/* Adds one file, also one that is no part. */
tsr_status tsr__view_add_file(const char *path, tsr__view *view) TSR_NODISCARD;
void tsr__view_finish(tsr__view *view);

/* The parts of one checkpoint. */
typedef struct tsr__chosen {
    tsr__part_id id;     /* its number is not used; `of` is 0 if there is no checkpoint */
    uint64_t generation; /* the largest generation that any rank sees */
    int *reader;         /* [of]: the rank that reads each part; -1: no rank has it */
    int *mine;           /* [of]: the index of the part in this rank's view; -1: not there */
} tsr__chosen;
/* Chooses the newest checkpoint that is complete over the views of all ranks. If none is, chooses
 * the newest incomplete one, with *missing set to a sentence about its first missing part;
 * otherwise the text of *missing is "". `path` names the checkpoint in error texts. */
tsr_status tsr__parts_choose(const char *who, tsr_comm *comm, const char *path,
                             const tsr__view *view, tsr__chosen *out,
                             tsr__error *missing) TSR_NODISCARD;
void tsr__chosen_finish(tsr__chosen *chosen);

/* part_table.c ------------------------------------------------------------------------------- */

/* A tensor: slices first … first + count - 1 of the table. */
typedef struct tsr__sliced {
    /* The entry of one of the slices, for the tensor's name, dtype and shape. */
    const tsr_checkpoint_entry *of;
    size_t first, count;
} tsr__sliced;

/* The parts of a checkpoint, some of which may be missing. */
typedef struct tsr__parts {
    tsr__part *parts; /* [count]; a missing part has no slices and a header of 0 bytes */
    char **paths;     /* [count]: the path of each part that this rank sees; otherwise NULL */
    int *readers;     /* [count]: the rank that reads each part; -1: missing */
    int count;
    tsr__slice *slices; /* sorted by the names of their tensors, then by part */
    size_t slice_count;
    tsr__sliced *tensors; /* sorted by name */
    size_t tensor_count;
    tsr__params params; /* the tensors as parameters */
} tsr__parts;
/* Reads the headers of all parts that are not missing. All ranks of `comm` get the same table. */
tsr_status tsr__parts_read(const char *who, tsr_comm *comm, const tsr__view *view,
                           const tsr__chosen *chosen, tsr__parts *out) TSR_NODISCARD;
/* Finds, chooses and reads the checkpoint `path`. All its parts must be there. */
tsr_status tsr__parts_open(const char *who, const char *path, tsr_comm *comm,
                           tsr__parts *out) TSR_NODISCARD;
/* After a failure to open `path` as one file or an index, or to find a tensor in an index: if the
 * status is TSR_ERR_NOT_FOUND and this process sees parts of such a checkpoint, appends to the
 * error text that they must be loaded as parts. Returns `status`, or TSR_ERR_NO_MEMORY. */
tsr_status tsr__parts_explain(const char *path, tsr_status status) TSR_NODISCARD;
/* Checks that the slices of each tensor make up the tensor. */
tsr_status tsr__parts_check_cover(const char *who, const tsr__parts *parts) TSR_NODISCARD;
void tsr__parts_finish(tsr__parts *parts);

/* part_read.c -------------------------------------------------------------------------------- */

/* Reads the slices of parts. Keeps files open. */
typedef struct tsr__part_reader {
    const char *who;
    const tsr__parts *parts;
    int *descriptors; /* [parts->count]; -1: closed */
    int open;
    uint8_t *chunk; /* TSR__PART_CHUNK_BYTES */
} tsr__part_reader;
tsr_status tsr__part_reader_init(const char *who, const tsr__parts *parts,
                                 tsr__part_reader *out) TSR_NODISCARD;
void tsr__part_reader_finish(tsr__part_reader *reader);
/* Reads `size` bytes of a slice, from byte `at_bytes` of the slice on, into reader->chunk. *state
 * is the state of the checksum, which the caller must set to 0 before the first chunk. After the
 * last byte, compares the checksum. */
tsr_status tsr__part_reader_chunk(tsr__part_reader *reader, const tsr__slice *slice,
                                  uint64_t at_bytes, uint64_t size, uint32_t *state) TSR_NODISCARD;

/* Saving and loading ------------------------------------------------------------------------- */

/* tsr_checkpoint_save and tsr_checkpoint_load with `parts`. The entries have been checked. */
tsr_status tsr__parts_save(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                           const tsr_checkpoint_entry *entries, const char *const *metadata,
                           bool checksums) TSR_NODISCARD;
tsr_status tsr__parts_load(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                           const tsr_checkpoint_entry *entries,
                           const tsr_checkpoint_params *params) TSR_NODISCARD;

#endif
