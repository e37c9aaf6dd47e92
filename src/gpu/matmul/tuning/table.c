#include "gpu/matmul/tuning/table.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "gpu/matmul/tuning/shape_class.h"
#include "gpu/matmul/tuning/tuning.h"

/* An entry of the table in a file. It has no padding. */
typedef struct record {
    uint64_t shape_class;
    char config[TSR__TUNING_KERNEL_SIZE]; /* padded with zeros */
    uint32_t splits;
    uint32_t zero;
} record;

_Static_assert(sizeof(record) == 8 + TSR__TUNING_KERNEL_SIZE + 8, "a record has no padding");

void tsr__tuned_table_finish(tsr__tuned_table *table)
{
    tsr__free(table->entries);
    *table = (tsr__tuned_table){0};
}

/* Returns the index of the first entry whose class is at least `shape_class`. */
static size_t place_of(const tsr__tuned_table *table, uint64_t shape_class)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->entries[middle].shape_class < shape_class)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const tsr__tuned_entry *tsr__tuned_table_find(const tsr__tuned_table *table, uint64_t shape_class)
{
    size_t place = place_of(table, shape_class);
    if (place == table->count || table->entries[place].shape_class != shape_class)
        return NULL;
    return &table->entries[place];
}

int tsr__tuned_table_choices(const tsr__tuned_table *table)
{
    int count = 0;
    for (size_t i = 0; i < table->count; i++)
        count += table->entries[i].config != NULL;
    return count;
}

tsr_status tsr__tuned_table_set(tsr__tuned_table *table, const tsr__tuned_entry *entry)
{
    size_t place = place_of(table, entry->shape_class);
    if (place < table->count && table->entries[place].shape_class == entry->shape_class) {
        table->entries[place] = *entry;
        return TSR_OK;
    }
    if (table->count >= TSR__MAX_TUNED)
        return tsr__fail(TSR_ERR_OVERFLOW, "tuning: there are %zu classes of products already",
                         table->count);
    void *entries = table->entries;
    TSR__TRY(tsr__grow(&entries, &table->capacity, table->count + 1, sizeof *table->entries));
    table->entries = entries;
    memmove(&table->entries[place + 1], &table->entries[place],
            (table->count - place) * sizeof *table->entries);
    table->entries[place] = *entry;
    table->count++;
    return TSR_OK;
}

tsr_status tsr__tuned_table_merge(tsr__tuned_table *table, const tsr__tuned_table *changes)
{
    for (size_t i = 0; i < changes->count; i++)
        TSR__TRY(tsr__tuned_table_set(table, &changes->entries[i]));
    return TSR_OK;
}

tsr_status tsr__tuned_table_encode(const tsr__tuned_table *table, void **out, size_t *out_bytes)
{
    record *records = tsr__calloc(table->count, sizeof *records);
    size_t count = 0;
    if (!records)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < table->count; i++) {
        const tsr__tuned_entry *entry = &table->entries[i];
        if (!entry->config)
            continue;
        records[count] = (record){.shape_class = entry->shape_class, .splits = entry->splits};
        strncpy(records[count].config, entry->config->name, TSR__TUNING_KERNEL_SIZE - 1);
        count++;
    }
    *out = records;
    *out_bytes = count * sizeof *records;
    return TSR_OK;
}

static bool text_ends(const char text[TSR__TUNING_KERNEL_SIZE])
{
    size_t length = 0;
    while (length < TSR__TUNING_KERNEL_SIZE && text[length] != '\0')
        length++;
    for (size_t i = length; i < TSR__TUNING_KERNEL_SIZE; i++)
        if (text[i] != '\0')
            return false;
    return length > 0 && length < TSR__TUNING_KERNEL_SIZE;
}

static tsr_status decode_record(const record *r, size_t place, tsr__tuned_table *table)
{
    tsr__shape_class shape_class;
    TSR__REQUIRE(tsr__shape_class_unpack(r->shape_class, &shape_class),
                 "tuning: record %zu: %016llx is not a class of products", place,
                 (unsigned long long)r->shape_class);
    TSR__REQUIRE(text_ends(r->config), "tuning: record %zu: the kernel's name is damaged", place);
    TSR__REQUIRE(r->splits <= TSR__TUNING_MAX_SPLITS && r->zero == 0,
                 "tuning: record %zu: splits is %u; at most %u are possible", place,
                 (unsigned)r->splits, (unsigned)TSR__TUNING_MAX_SPLITS);
    const tsr__matmul_config *config = tsr__matmul_config_named(r->config);
    if (!config)
        return TSR_OK;
    return tsr__tuned_table_set(
        table,
        &(tsr__tuned_entry){.shape_class = r->shape_class, .config = config, .splits = r->splits});
}

tsr_status tsr__tuned_table_decode(const void *data, size_t bytes, tsr__tuned_table *out)
{
    tsr__tuned_table table = {0};
    uint64_t last = 0; /* smaller than the number of every class */
    TSR__REQUIRE(bytes % sizeof(record) == 0 && bytes / sizeof(record) <= TSR__MAX_TUNED,
                 "tuning: the table has %zu bytes; at most %d records of %zu bytes are expected",
                 bytes, TSR__MAX_TUNED, sizeof(record));
    for (size_t i = 0; i < bytes / sizeof(record); i++) {
        record r;
        memcpy(&r, (const uint8_t *)data + i * sizeof r, sizeof r);
        tsr_status status =
            r.shape_class > last
                ? decode_record(&r, i, &table)
                : tsr__fail(TSR_ERR_INVALID, "tuning: record %zu is out of order", i);
        if (status != TSR_OK) {
            tsr__tuned_table_finish(&table);
            return status;
        }
        last = r.shape_class;
    }
    *out = table;
    return TSR_OK;
}
