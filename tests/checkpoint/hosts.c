#include "checkpoint/hosts.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The model ------------------------------------------------------------------------------------ */

/* Which ranks have which elements of a tensor. */
typedef enum division { ROWS, COLUMNS, RANGES, EVERYONE, LAST } division;

static const struct {
    const char *name;
    tsr_dtype dtype;
    int ndim;
    int64_t shape[3];
    division how;
} tensors[HOSTS_TENSORS] = {
    {"rows", TSR_I32, 2, {13, 7}, ROWS},
    {"columns", TSR_BF16, 3, {3, 11, 4}, COLUMNS},
    {"ranges", TSR_F32, 2, {9, 17}, RANGES},
    {"everyone", TSR_U8, 1, {100}, EVERYONE},
    {"scalar", TSR_I64, 0, {0}, EVERYONE},
    {"empty", TSR_F16, 2, {0, 3}, EVERYONE},
    {"optimizer.\"x\"[0:2]", TSR_F64, 1, {5}, LAST},
};

static uint64_t width_of(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? 8 : tsr_dtype_size(dtype);
}

static unsigned char byte_of(int tensor, uint64_t at, int version)
{
    const uint32_t mixed = (uint32_t)(at * 2654435761u) ^ (uint32_t)(tensor * 40503 + version * 97);
    return (unsigned char)(mixed >> 7 ^ mixed);
}

static tsr_checkpoint_entry entry_of(int tensor, int rank, int size)
{
    tsr_checkpoint_entry e = {.struct_size = sizeof(tsr_checkpoint_entry),
                              .name = tensors[tensor].name,
                              .dtype = tensors[tensor].dtype,
                              .ndim = tensors[tensor].ndim,
                              .shard_dim = -1};
    uint64_t elements = 1;
    for (int d = 0; d < e.ndim; d++) {
        e.shape[d] = tensors[tensor].shape[d];
        elements *= (uint64_t)e.shape[d];
    }
    const division how = tensors[tensor].how;
    e.count = elements;
    if (how == ROWS || how == COLUMNS) {
        e.shard_dim = how == ROWS ? 0 : 1;
        const int64_t all = e.shape[e.shard_dim];
        e.offset = all * rank / size;
        e.length = all * (rank + 1) / size - e.offset;
        e.count = elements / (uint64_t)all * (uint64_t)e.length;
    } else if (how == RANGES) {
        e.first = elements * (uint64_t)rank / (uint64_t)size;
        e.count = elements * (uint64_t)(rank + 1) / (uint64_t)size - e.first;
    } else if (how == LAST && rank != size - 1)
        e.count = 0;
    return e;
}

/* Returns the position in the full tensor of element i of an entry. */
static uint64_t position(const tsr_checkpoint_entry *e, uint64_t i)
{
    if (e->shard_dim != 1)
        return i + e->first + (e->shard_dim == 0 ? (uint64_t)(e->offset * e->shape[1]) : 0);
    const uint64_t inner = (uint64_t)e->shape[2], row = (uint64_t)e->length * inner;
    return i / row * (uint64_t)e->shape[1] * inner + (uint64_t)e->offset * inner + i % row;
}

static unsigned char expected(int tensor, const tsr_checkpoint_entry *e, uint64_t byte, int version)
{
    const uint64_t width = width_of(e->dtype);
    return byte_of(tensor, position(e, byte / width) * width + byte % width, version);
}

void hosts_model_init(hosts_model *model, int rank, int size, int version)
{
    for (int t = 0; t < HOSTS_TENSORS; t++) {
        tsr_checkpoint_entry *e = &model->entries[t];
        *e = entry_of(t, rank, size);
        e->data = model->memory[t];
        for (uint64_t b = 0; b < e->count * width_of(e->dtype); b++)
            model->memory[t][b] = expected(t, e, b, version);
    }
}

void hosts_model_clear(hosts_model *model)
{
    memset(model->memory, 0xee, sizeof model->memory);
}

int hosts_model_version(const hosts_model *model, int rank, int size, int highest)
{
    for (int version = 0; version <= highest; version++) {
        bool same = true;
        for (int t = 0; t < HOSTS_TENSORS && same; t++) {
            const tsr_checkpoint_entry e = entry_of(t, rank, size);
            const uint64_t bytes = e.count * width_of(e.dtype);
            for (uint64_t b = 0; b < bytes && same; b++)
                same = model->memory[t][b] == expected(t, &e, b, version);
            same = same && model->memory[t][bytes] == 0xee;
        }
        if (same)
            return version;
    }
    return -1;
}

/* Folders -------------------------------------------------------------------------------------- */

static const char *const hosts[] = {"a", "b", "c", "all"};

const char *on_host(const char *host, const char *file)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%s", host, file);
    return in_folder(name);
}

void hosts_make(void)
{
    folder_make();
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        ck_assert_int_eq(mkdir(in_folder(hosts[i]), 0777), 0);
}

static int each_file(const char *host, void (*visit)(const char *host, const char *name, void *),
                     void *user)
{
    DIR *listing = opendir(in_folder(host));
    ck_assert_ptr_nonnull(listing);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        if (visit)
            visit(host, entry->d_name, user);
    }
    closedir(listing);
    return count;
}

static void remove_one(const char *host, const char *name, void *user)
{
    (void)user;
    ck_assert_int_eq(remove(on_host(host, name)), 0);
}

static void copy_one(const char *host, const char *name, void *user)
{
    size_t size;
    char *data = read_file(on_host(host, name), &size);
    ck_assert_ptr_nonnull(data);
    write_file(on_host(user, name), data, size);
    free(data);
}

int hosts_files(const char *host)
{
    return each_file(host, NULL, NULL);
}

void hosts_empty(const char *host)
{
    each_file(host, remove_one, NULL);
}

void hosts_copy(const char *from, const char *to)
{
    char name[8];
    snprintf(name, sizeof name, "%s", to);
    each_file(from, copy_one, name);
}

void hosts_remove(void)
{
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        hosts_empty(hosts[i]);
    folder_remove();
}
