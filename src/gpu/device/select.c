#include "gpu/device/select.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Writes the devices to `text`, as "0 (llvmpipe), 1 (…)", truncated to `size` bytes. */
static const char *describe(const tsr_device_info *const *devices, int count, char *text,
                            size_t size)
{
    size_t used = 0;
    snprintf(text, size, "no device at all");
    for (int i = 0; i < count && used < size; i++) {
        int wrote =
            snprintf(text + used, size - used, "%s%d (%s)", i ? ", " : "", i, devices[i]->name);
        if (wrote < 0)
            break;
        used += (size_t)wrote;
    }
    return text;
}

static uint64_t local_memory(const tsr_device_info *device)
{
    uint64_t bytes = 0;
    for (int i = 0; i < device->heap_count; i++) {
        const tsr_heap_info *heap = tsr_device_heap(device, i);
        if (heap->device_local && heap->size_bytes > bytes)
            bytes = heap->size_bytes;
    }
    return bytes;
}

static int rank_of(tsr_device_type type)
{
    switch (type) {
    case TSR_DEVICE_DISCRETE:
        return 4;
    case TSR_DEVICE_INTEGRATED:
        return 3;
    case TSR_DEVICE_VIRTUAL:
        return 2;
    case TSR_DEVICE_OTHER:
        return 1;
    default:
        return 0;
    }
}

static tsr_status select_best(const tsr_device_info *const *devices, int count, int *out)
{
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (!devices[i]->usable)
            continue;
        if (best < 0 || rank_of(devices[i]->type) > rank_of(devices[best]->type) ||
            (rank_of(devices[i]->type) == rank_of(devices[best]->type) &&
             local_memory(devices[i]) > local_memory(devices[best])))
            best = i;
    }
    if (best < 0 && count > 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "device: none of the %d devices can be used; the first, %s: %s", count,
                         devices[0]->name, devices[0]->unusable_reason);
    if (best < 0)
        return tsr__fail(TSR_ERR_NOT_FOUND, "device: this machine has no Vulkan device");
    *out = best;
    return TSR_OK;
}

static bool all_digits(const char *text)
{
    for (const char *c = text; *c; c++)
        if (!isdigit((unsigned char)*c))
            return false;
    return text[0] != '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool parse_uuid(const char *text, uint8_t uuid[TSR_UUID_SIZE])
{
    int digits = 0;
    memset(uuid, 0, TSR_UUID_SIZE);
    for (const char *c = text; *c; c++) {
        if (*c == '-')
            continue;
        int digit = hex_digit(*c);
        if (digit < 0 || digits == 2 * TSR_UUID_SIZE)
            return false;
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | digit);
        digits++;
    }
    return digits == 2 * TSR_UUID_SIZE;
}

static bool contains_ignoring_case(const char *text, const char *wanted)
{
    size_t length = strlen(wanted);
    for (; *text; text++) {
        size_t i = 0;
        while (i < length && text[i] &&
               tolower((unsigned char)text[i]) == tolower((unsigned char)wanted[i]))
            i++;
        if (i == length)
            return true;
    }
    return false;
}

/* A function that returns whether a device has the UUID `key`, or a name that contains the text
 * `key`. */
typedef bool (*match_fn)(const tsr_device_info *device, const void *key);

static bool match_uuid(const tsr_device_info *device, const void *key)
{
    return memcmp(device->uuid, key, TSR_UUID_SIZE) == 0;
}

static bool match_name(const tsr_device_info *device, const void *key)
{
    return contains_ignoring_case(device->name, key);
}

static tsr_status select_matching(const tsr_device_info *const *devices, int count,
                                  const char *wanted, match_fn matches, const void *key, int *out)
{
    char text[512];
    int found = -1;
    for (int i = 0; i < count; i++) {
        if (!matches(devices[i], key))
            continue;
        if (found >= 0)
            return tsr__fail(TSR_ERR_INVALID,
                             "device: \"%s\" matches several devices: %d (%s) and %d (%s); "
                             "use an index or a UUID",
                             wanted, found, devices[found]->name, i, devices[i]->name);
        found = i;
    }
    if (found < 0)
        return tsr__fail(TSR_ERR_NOT_FOUND, "device: no device matches \"%s\"; there is %s", wanted,
                         describe(devices, count, text, sizeof text));
    *out = found;
    return TSR_OK;
}

static tsr_status select_index(const tsr_device_info *const *devices, int count, const char *wanted,
                               int *out)
{
    char text[512];
    long index = 0;
    for (const char *c = wanted; *c && index <= count; c++)
        index = index * 10 + (*c - '0');
    if (index >= count)
        return tsr__fail(TSR_ERR_NOT_FOUND, "device: there is no device %s; there is %s", wanted,
                         describe(devices, count, text, sizeof text));
    *out = (int)index;
    return TSR_OK;
}

tsr_status tsr__select_device(const tsr_device_info *const *devices, int count, const char *wanted,
                              int *out)
{
    if (!wanted || wanted[0] == '\0')
        return select_best(devices, count, out);

    int chosen = -1;
    uint8_t uuid[TSR_UUID_SIZE];
    /* Try UUIDs first. No UUID is a valid index: even if its 32 digits are all decimal, it is far
     * too long. */
    if (parse_uuid(wanted, uuid))
        TSR__TRY(select_matching(devices, count, wanted, match_uuid, uuid, &chosen));
    else if (all_digits(wanted))
        TSR__TRY(select_index(devices, count, wanted, &chosen));
    else
        TSR__TRY(select_matching(devices, count, wanted, match_name, wanted, &chosen));

    if (!devices[chosen]->usable)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "device: %d (%s) cannot be used: %s", chosen,
                         devices[chosen]->name, devices[chosen]->unusable_reason);
    *out = chosen;
    return TSR_OK;
}
