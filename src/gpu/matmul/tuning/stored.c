/* tsr__tuning_find: describes the tuning file of a device without opening the device. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "gpu/device/device.h"
#include "gpu/matmul/tuning/tuned.h"
#include "gpu/matmul/tuning/tuning.h"

_Static_assert(TSR__TUNING_PATH_SIZE >= TSR__CACHE_PATH, "every path fits");
_Static_assert(TSR__TUNING_REASON_SIZE >= TSR__TUNED_REASON, "every reason fits");

/* A tuning file for this device that was made for another version of the driver and therefore has
 * another name. */
typedef struct leftover {
    char path[TSR__CACHE_PATH];
    uint32_t driver_version;
    int64_t
        written_s; /* when the file was written; of several such files, the latest is reported */
    bool found;
} leftover;

static int64_t written_at(const char *path)
{
    struct stat file;
    return lstat(path, &file) == 0 ? (int64_t)file.st_mtime : 0;
}

static void consider(const tsr__tuned_owner *owner, const char *own, const char *path,
                     leftover *out)
{
    tsr__cache_key key, same;
    if (strcmp(path, own) == 0 || !tsr__cache_peek(&tsr__tuned_file, path, &key) ||
        key.vendor_id != owner->info->vendor_id || key.device_id != owner->info->device_id ||
        key.storage != (uint32_t)owner->storage)
        return;
    tsr__tuned_identify(owner, &same);
    same.shader_hash = key.shader_hash;
    if (memcmp(&same, &key, sizeof key) == 0)
        return; /* a copy of the device's own file */
    int64_t written_s = written_at(path);
    if (out->found && written_s <= out->written_s)
        return;
    out->found = true;
    out->written_s = written_s;
    out->driver_version = key.driver_version;
    snprintf(out->path, sizeof out->path, "%s", path);
}

/* Searches the folder of the device's own file for tuning files of other driver versions. The
 * device's own file need not exist. */
static leftover look_for_others(const tsr__tuned_owner *owner, const char *own)
{
    leftover seen = {.found = false};
    char path[TSR__CACHE_PATH];
    size_t folder = (size_t)(strrchr(own, '/') - own), prefix = strlen(tsr__tuned_file.prefix);
    const struct dirent *entry;
    snprintf(path, sizeof path, "%.*s", (int)folder, own);
    DIR *names = opendir(path);
    if (!names)
        return seen;
    while ((entry = readdir(names)) != NULL) {
        const char *end = strrchr(entry->d_name, '.');
        if (strncmp(entry->d_name, tsr__tuned_file.prefix, prefix) != 0 || end == NULL ||
            strcmp(end, ".bin") != 0)
            continue;
        int length = snprintf(path, sizeof path, "%.*s/%s", (int)folder, own, entry->d_name);
        if (length > 0 && (size_t)length < sizeof path)
            consider(owner, own, path, &seen);
    }
    closedir(names);
    return seen;
}

static void refuse_leftover(const tsr__tuned_owner *owner, const leftover *other,
                            tsr__tuning_stored *out)
{
    out->state = TSR__TUNING_REFUSED;
    out->written_s = other->written_s;
    snprintf(out->path, sizeof out->path, "%s", other->path);
    if (other->driver_version != owner->info->driver_version)
        snprintf(out->reason, sizeof out->reason,
                 "it was made for version 0x%x of the driver; this is 0x%x",
                 (unsigned)other->driver_version, (unsigned)owner->info->driver_version);
    else
        snprintf(out->reason, sizeof out->reason,
                 "it was made for another build or setting of the driver");
}

/* Describes the device's own file, which must exist. */
static tsr_status describe(const tsr__tuned_owner *owner, tsr__tuning_stored *out)
{
    tsr__tuned_table table;
    out->written_s = written_at(out->path);
    if (access(out->path, R_OK) != 0) {
        out->state = TSR__TUNING_REFUSED;
        snprintf(out->reason, sizeof out->reason, "it cannot be read: %s", strerror(errno));
        return TSR_OK;
    }
    TSR__TRY(tsr__tuned_read(owner, out->path, &table, out->reason));
    out->classes = tsr__tuned_table_choices(&table);
    out->state = out->reason[0] != '\0' ? TSR__TUNING_REFUSED
                 : tsr__tuned_wanted()  ? TSR__TUNING_USED
                                        : TSR__TUNING_IGNORED;
    tsr__tuned_table_finish(&table);
    return TSR_OK;
}

tsr_status tsr__tuning_find(const tsr_device_info *device, tsr__tuning_stored *out)
{
    tsr__tuning_stored found = {.state = TSR__TUNING_NONE};
    struct stat file;
    TSR__REQUIRE(device != NULL && out != NULL, "tuning_find: %s is NULL",
                 device ? "out" : "device");
    tsr__tuned_owner owner = {.info = device, .storage = tsr__storage_of(device)};
    /* If there is no cache folder, no tuning can have been stored. */
    if (tsr__tuned_path(&owner, found.path) != TSR_OK) {
        *out = (tsr__tuning_stored){.state = TSR__TUNING_NONE};
        return TSR_OK;
    }
    if (lstat(found.path, &file) == 0) {
        TSR__TRY(describe(&owner, &found));
    } else {
        leftover other = look_for_others(&owner, found.path);
        if (other.found)
            refuse_leftover(&owner, &other, &found);
        else
            found.path[0] = '\0';
    }
    *out = found;
    return TSR_OK;
}
