#include "checkpoint/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

void folder_make(void)
{
    snprintf(folder, sizeof folder, "/tmp/tessera-checkpoint-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static int each_file(bool remove_it)
{
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        count++;
        if (remove_it)
            (void)remove(in_folder(entry->d_name));
    }
    closedir(dir);
    return count;
}

void folder_remove(void)
{
    each_file(true);
    rmdir(folder);
}

int files_in_folder(void)
{
    return each_file(false);
}

const char *in_folder(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *data = NULL;
    size_t got = 0, room = 0;
    do {
        room = room * 2 + 65536;
        data = realloc(data, room);
        ck_assert_ptr_nonnull(data);
        got += fread(data + got, 1, room - got, file);
    } while (got == room);
    fclose(file);
    *size = got;
    return data;
}

void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

tsr_checkpoint_entry host_entry(const char *name, tsr_dtype dtype, int ndim, const int64_t *shape,
                                void *data)
{
    tsr_checkpoint_entry entry = {.struct_size = sizeof(tsr_checkpoint_entry),
                                  .name = name,
                                  .dtype = dtype,
                                  .ndim = ndim,
                                  .shard_dim = -1,
                                  .count = 1,
                                  .data = data};
    for (int d = 0; d < ndim; d++) {
        entry.shape[d] = shape[d];
        entry.count *= (uint64_t)shape[d];
    }
    return entry;
}
