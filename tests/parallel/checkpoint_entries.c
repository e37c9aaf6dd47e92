/* Entries of checkpoints: values that must be the same on all ranks, and failures on one rank,
 * which leave no file. */
#include "parallel/fsdp_case.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"

/* Returns the text that this rank must get for an error that occurs on rank `of`. On the other
 * ranks, the text names that rank. */
static const char *told_by(int of, const char *who, const char *text)
{
    static char said[512];
    char rank[24] = "";
    if (my_rank != of)
        snprintf(rank, sizeof rank, "rank %d: ", of);
    snprintf(said, sizeof said, "%s: %s%s", who, rank, text);
    return said;
}

static const char *said_by(int of, const char *text)
{
    return told_by(of, "checkpoint_save", text);
}

CASE(strided, "checkpoint: non-contiguous tensors, and host memory")
{
    char path[SHARED_PATH];
    shared_path(world, "strided", path);
    const int64_t shape[2] = {6, 5};
    double *values = numbers(3, 30, TSR_F16);
    int32_t host[3] = {my_rank, my_rank + 1, my_rank + 2}, read[3] = {0};
    tsr_tensor *tensor = tensor_with_gaps(TSR_F16, 2, shape);
    tensor_put(tensor, values);
    tsr_checkpoint_entry entries[] = {{.struct_size = sizeof(tsr_checkpoint_entry),
                                       .name = "gaps",
                                       .dtype = TSR_F16,
                                       .ndim = 2,
                                       .shape = {6, 5},
                                       .shard_dim = -1,
                                       .count = 30,
                                       .tensor = tensor},
                                      {.struct_size = sizeof(tsr_checkpoint_entry),
                                       .name = "each",
                                       .dtype = TSR_I32,
                                       .ndim = 2,
                                       .shape = {ranks, 3},
                                       .shard_dim = 0,
                                       .offset = my_rank,
                                       .length = 1,
                                       .count = 3,
                                       .data = host}};
    OK(tsr_checkpoint_save(path, world, queue, 2, entries, NULL));
    OK(tsr_fill(queue, tensor, 0));
    entries[1].data = read;
    OK(tsr_checkpoint_load(path, world, queue, 2, entries, NULL));
    double *got = values_of(tensor);
    for (int i = 0; i < 30; i++)
        CHECK(got[i] == values[i], "element %d is %g, not %g", i, got[i], values[i]);
    CHECK(memcmp(host, read, sizeof host) == 0, "another rank's part");
    free(got);
    free(values);
    tsr_tensor_destroy(&tensor);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
}

CASE(repeated, "checkpoint: a view that repeats elements is saved, and refused before any is read")
{
    char path[SHARED_PATH];
    shared_path(world, "repeated", path);
    tsr_tensor *column = tensor_new(TSR_F32, 2, (int64_t[]){4, 1}), *view = NULL;
    float first[2] = {1, 2};
    OK(tsr_tensor_broadcast(column, 2, (int64_t[]){4, 5}, &view));
    OK(tsr_fill(queue, column, 3));
    tsr_checkpoint_entry entries[] = {{.struct_size = sizeof(tsr_checkpoint_entry),
                                       .name = "first",
                                       .dtype = TSR_F32,
                                       .ndim = 1,
                                       .shape = {2},
                                       .shard_dim = -1,
                                       .count = 2,
                                       .data = first},
                                      {.struct_size = sizeof(tsr_checkpoint_entry),
                                       .name = "view",
                                       .dtype = TSR_F32,
                                       .ndim = 2,
                                       .shape = {4, 5},
                                       .shard_dim = -1,
                                       .count = 20,
                                       .tensor = view}};
    OK(tsr_checkpoint_save(path, world, queue, 2, entries, NULL));
    first[0] = first[1] = 7;
    FAILS(tsr_checkpoint_load(path, world, queue, 2, entries, NULL), TSR_ERR_INVALID,
          told_by(0, "checkpoint_load",
                  "'view' is in a view [4,5] that names an element more than once and cannot be "
                  "written"));
    CHECK(first[0] == 7 && first[1] == 7, "the first entry has been read");
    tsr_tensor_destroy(&view);
    tsr_tensor_destroy(&column);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
}

/* Tests a tensor [8,ranks,3] that is divided along dim 1, in which one byte of the file was
 * changed. */
CASE(damaged, "checkpoint: a tensor that ranks read in parts is verified by all of them together")
{
    char path[SHARED_PATH], want[256], tail[256];
    shared_path(world, "damaged", path);
    float part[24], all[24 * 64];
    for (int i = 0; i < 24; i++)
        part[i] = (float)(my_rank * 100 + i);
    tsr_checkpoint_entry e = {.struct_size = sizeof(tsr_checkpoint_entry),
                              .name = "cube",
                              .dtype = TSR_F32,
                              .ndim = 3,
                              .shape = {8, ranks, 3},
                              .shard_dim = 1,
                              .offset = my_rank,
                              .length = 1,
                              .count = 24,
                              .data = part};
    OK(tsr_checkpoint_save(path, world, NULL, 1, &e, NULL));
    OK(tsr_checkpoint_load(path, world, NULL, 1, &e, NULL));
    tsr_checkpoint_entry whole = e;
    whole.shard_dim = -1;
    whole.count = (uint64_t)ranks * 24;
    whole.data = all;
    OK(tsr_checkpoint_load(path, world, NULL, 1, &whole, NULL));
    CHECK(all[3 * my_rank + 1] == part[1], "another rank's part");
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0) {
        FILE *file = fopen(path, "r+b");
        CHECK(file && fseek(file, -10, SEEK_END) == 0 && fputc(0x55, file) == 0x55 &&
                  fclose(file) == 0,
              "%s cannot be changed", path);
    }
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    snprintf(want, sizeof want, "checkpoint_load: %s: the data of 'cube' are damaged", path);
    /* The ranks read the tensor divided along dim 1, and then divided along dim 0. Then every rank
     * reads all of it. */
    tsr_checkpoint_entry rows = whole;
    rows.shard_dim = 0;
    rows.offset = my_rank == 0 ? 0 : my_rank < 8 ? my_rank : 8;
    rows.length = my_rank >= 8 ? 0 : my_rank == ranks - 1 ? 8 - my_rank : 1;
    rows.count = (uint64_t)rows.length * (uint64_t)ranks * 3;
    const tsr_checkpoint_entry *ways[] = {&e, &rows, &whole};
    for (int i = 0; i < 3; i++) {
        tsr_status status = tsr_checkpoint_load(path, world, NULL, 1, ways[i], NULL);
        snprintf(tail, sizeof tail, "%s", tsr_last_error());
        CHECK(status == TSR_ERR_INVALID && strncmp(tail, want, strlen(want)) == 0, "way %d: %s: %s",
              i, tsr_status_name(status), tail);
        OK(tsr_checkpoint_load(path, world, NULL, 1, ways[i],
                               tsr_checkpoint_params(.skip_checksums = true)));
    }
    /* No rank reads the last rank's part, so the checksum of the tensor cannot be verified. */
    e.count = my_rank == ranks - 1 ? 0 : e.count;
    OK(tsr_checkpoint_load(path, world, NULL, 1, &e, NULL));
    if (ranks > 1)
        FAILS(tsr_checkpoint_load(path, world, NULL, 1, &whole,
                                  tsr_checkpoint_params(.skip_checksums = my_rank == 1)),
              TSR_ERR_INVALID,
              told_by(1, "checkpoint_load", "skip_checksums is true, not the same as on rank 0"));
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

CASE(disagreement, "checkpoint: ranks whose entries differ write nothing")
{
    if (ranks == 1) {
        case_skip("needs two ranks");
        return;
    }
    char path[SHARED_PATH];
    shared_path(world, "none", path);
    float data[8] = {0};
    const tsr_checkpoint_entry good = {.struct_size = sizeof(tsr_checkpoint_entry),
                                       .name = "x",
                                       .dtype = TSR_F32,
                                       .ndim = 1,
                                       .shape = {8},
                                       .shard_dim = -1,
                                       .count = 8,
                                       .data = data};
    tsr_checkpoint_entry e = good;
    const bool other = my_rank == 1;
#define NOT_SAVED(count, params, text)                                                             \
    FAILS(tsr_checkpoint_save(path, world, NULL, count, &e, params), TSR_ERR_INVALID, text);       \
    e = good
    NOT_SAVED(other ? 0 : 1, NULL, said_by(1, "this rank has 0 entries, and rank 0 has 1"));
    e.name = other ? "y" : "x";
    NOT_SAVED(1, NULL,
              said_by(1, "entry 0, 'y' f32 [8] with shard_dim -1, is different on rank 0"));
    e.shape[0] = other ? 9 : 8;
    e.count = other ? 9 : 8;
    float more[9] = {0};
    e.data = more;
    NOT_SAVED(1, NULL,
              said_by(1, "entry 0, 'x' f32 [9] with shard_dim -1, is different on rank 0"));
    e.data = other ? NULL : data;
    NOT_SAVED(1, NULL, said_by(1, "'x' has no memory"));
    const char *const metadata[] = {"epoch", other ? "1" : "2", NULL};
    NOT_SAVED(1, tsr_checkpoint_params(.metadata = metadata),
              said_by(1, "the metadata are not the same as on rank 0"));
    /* Each rank detects these errors by itself, so its text names no other rank. */
    e.shard_dim = 0;
    e.offset = my_rank > 0;
    e.length = 7;
    e.count = 7;
    NOT_SAVED(1, NULL,
              "checkpoint_save: 'x': the parts of rank 0 and rank 1 overlap, and are not the same");
    e.first = my_rank > 0 ? 5 : 0;
    e.count = my_rank > 0 ? 3 : 4;
    NOT_SAVED(1, NULL, "checkpoint_save: 'x': no rank has elements 4 to 4 of a part");
    e.first = my_rank > 0 ? 3 : 0;
    e.count = my_rank > 0 ? 5 : 4;
    NOT_SAVED(1, NULL,
              "checkpoint_save: 'x': the parts of rank 0 and rank 1 overlap, and are not the same");
    CHECK(!exists(path), "%s is there", path);
    OK(tsr_checkpoint_save(path, world, NULL, 1, &good, NULL));
    CHECK(exists(path), "%s is not there", path);
    OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
}

/* Some ranks have half of the rows and others half of the columns, with the same offset and
 * length along their dimensions. */
CASE(dimensions, "checkpoint: ranks that divide along different dimensions write nothing")
{
    char path[SHARED_PATH];
    shared_path(world, "dims", path);
    float data[16], read[16];
    for (int i = 0; i < 16; i++)
        data[i] = (float)i;
    tsr_checkpoint_entry e = {.struct_size = sizeof(tsr_checkpoint_entry),
                              .name = "x",
                              .dtype = TSR_F32,
                              .ndim = 2,
                              .shape = {4, 4},
                              .shard_dim = my_rank % 2,
                              .offset = my_rank % 2 * 2,
                              .length = 2,
                              .count = 8,
                              .data = data};
    if (ranks > 1) {
        FAILS(tsr_checkpoint_save(path, world, NULL, 1, &e, NULL), TSR_ERR_INVALID,
              said_by(1, "entry 0, 'x' f32 [4,4] with shard_dim 1, is different on rank 0"));
        CHECK(!exists(path), "%s is there", path);
    }
    /* Each rank has all of dim 0, some with shard_dim -1 and some with 0. */
    e.shard_dim = my_rank % 2 == 0 ? -1 : 0;
    e.offset = 0;
    e.length = 4;
    e.first = my_rank == 0 ? 0 : 8;
    e.count = ranks == 1 ? 16 : 8;
    e.data = data + e.first;
    OK(tsr_checkpoint_save(path, world, NULL, 1, &e, NULL));
    e.first = 0;
    e.count = 16;
    e.data = read;
    OK(tsr_checkpoint_load(path, world, NULL, 1, &e, NULL));
    CHECK(memcmp(data, read, sizeof data) == 0, "other values");
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
}

static tsr_checkpoint_entry pair(int32_t data[2])
{
    return (tsr_checkpoint_entry){.struct_size = sizeof(tsr_checkpoint_entry),
                                  .name = "x",
                                  .dtype = TSR_I32,
                                  .ndim = 1,
                                  .shape = {2},
                                  .shard_dim = -1,
                                  .count = 2,
                                  .data = data};
}

/* Saves a model in one file with an index. Only the header of the model's file, not the index,
 * has the metadata `epoch`. */
static void save_indexed(const char *folder, const char *epoch)
{
    char path[3 * SHARED_PATH];
    int32_t data[2] = {1, 2};
    tsr_checkpoint_entry e = pair(data);
    CHECK(mkdir(folder, 0777) == 0, "cannot make %s", folder);
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    OK(tsr_checkpoint_save(
        path, NULL, NULL, 1, &e,
        tsr_checkpoint_params(.metadata = (const char *[]){"epoch", epoch, NULL})));
    snprintf(path, sizeof path, "%s/m.json", folder);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("{\"weight_map\":{\"x\":\"m.safetensors\"}}", file) > 0, "no index");
    fclose(file);
}

static void remove_indexed(const char *folder)
{
    static const char *const names[] = {"m.safetensors", "m.json", ""};
    char path[3 * SHARED_PATH];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
}

/* All ranks load `file` of folders[0], except the last rank, which loads that of folders[1]. */
static void load_apart(char folders[2][SHARED_PATH], const char *file)
{
    const int last = ranks - 1;
    char path[3 * SHARED_PATH];
    int32_t data[2] = {8, 9};
    tsr_checkpoint_entry e = pair(data);
    snprintf(path, sizeof path, "%s/%s", folders[my_rank == last], file);
    FAILS(tsr_checkpoint_load(path, world, NULL, 1, &e, NULL), TSR_ERR_INVALID,
          told_by(last, "checkpoint_load", "the file is not the same as on rank 0"));
    CHECK(data[0] == 8 && data[1] == 9, "a tensor has been read");
    snprintf(path, sizeof path, "%s/%s", folders[1], file);
    OK(tsr_checkpoint_load(path, world, NULL, 1, &e, NULL));
    CHECK(data[0] == 1 && data[1] == 2, "other values");
}

CASE(one_file,
     "checkpoint: ranks that load different files get an error, also for files of an index")
{
    if (ranks == 1) {
        case_skip("needs two ranks");
        return;
    }
    char folders[2][SHARED_PATH];
    shared_path(world, "one", folders[0]);
    shared_path(world, "other", folders[1]);
    for (int i = 0; i < 2 && my_rank == 0; i++)
        save_indexed(folders[i], i == 0 ? "3" : "4");
    OK(tsr_comm_barrier(world, NULL));
    load_apart(folders, "m.safetensors");
    load_apart(folders, "m.json");
    OK(tsr_comm_barrier(world, NULL));
    for (int i = 0; i < 2 && my_rank == 0; i++)
        remove_indexed(folders[i]);
}

CASE(one_fails,
     "checkpoint: if one rank's disk fails, all ranks return its error, and the file is unchanged")
{
    char path[SHARED_PATH];
    shared_path(world, "fails", path);
    const int last = ranks - 1;
    int32_t data[4] = {1, 1, 1, 1};
    tsr_checkpoint_entry e = {.struct_size = sizeof(tsr_checkpoint_entry),
                              .name = "x",
                              .dtype = TSR_I32,
                              .ndim = 2,
                              .shape = {ranks, 4},
                              .shard_dim = 0,
                              .offset = my_rank,
                              .length = 1,
                              .count = 4,
                              .data = data};
    OK(tsr_checkpoint_save(path, world, NULL, 1, &e, NULL));
    for (int i = 0; i < 4; i++)
        data[i] = 2;
    for (uint64_t nth = 0;; nth++) {
        if (my_rank == last)
            tsr__fault_arm(TSR__FAULT_IO, nth, EIO);
        tsr_status status = tsr_checkpoint_save(path, world, NULL, 1, &e, NULL);
        int32_t reached = my_rank == last && tsr__fault_site() != NULL;
        int32_t named = reached && strstr(tsr__fault_site(), "folder") != NULL;
        tsr__fault_disarm();
        if (world) {
            OK(tsr_comm_broadcast(world, &reached, 1, TSR_I32, last, NULL));
            OK(tsr_comm_broadcast(world, &named, 1, TSR_I32, last, NULL));
        }
        if (!reached) {
            OK(status);
            CHECK(nth >= (ranks > 1 ? 3 : 6), "only %llu calls", (unsigned long long)nth);
            break;
        }
        CHECK(status == TSR_ERR_IO, "call %llu: %s", (unsigned long long)nth,
              tsr_status_name(status));
        CHECK(strstr(tsr_last_error(), my_rank == last ? "checkpoint_save: cannot" : "rank "),
              "said %s", tsr_last_error());
        int32_t old[4] = {0};
        tsr_checkpoint_entry again = e;
        again.data = old;
        OK(tsr_checkpoint_load(path, world, NULL, 1, &again, NULL));
        CHECK(named || (old[0] == 1 && old[3] == 1), "the file has changed");
        char partial[96];
        snprintf(partial, sizeof partial, "%s.partial", path);
        if (world)
            OK(tsr_comm_barrier(world, NULL));
        CHECK(!exists(partial), "%s is there", partial);
    }
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank == 0)
        unlink(path);
}
