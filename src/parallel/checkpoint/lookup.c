/* tsr_checkpoint_metadata: looks up one metadata string of a safetensors file or of a checkpoint in
 * parts. */
#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/checkpoint/parts.h"
#include "shard/formats/header_file.h"
#include "shard/formats/readers.h"

static const char who[] = "checkpoint_metadata";

/* Checks the complete header first, and then parses it again to find the key. */
static tsr_status read_metadata(tsr__file *file, const char *key, tsr__metadata *out)
{
    tsr__params params = {0};
    uint8_t bytes[8];
    char *header = NULL;
    tsr_status status = tsr__read_safetensors(file, &params);
    const uint64_t count = params.count;
    tsr__params_finish(&params);
    if (status == TSR_OK)
        status = tsr__file_read(file, 0, sizeof bytes, "the header's length", bytes);
    if (status != TSR_OK)
        return status;
    const uint64_t size = tsr__little_endian(bytes, 8);
    TSR__TRY(tsr__file_load(file, 0, 8 + size, "the header", &header));
    uint32_t *checksums = NULL;
    status = tsr__checksums_read(header, 8 + size, count, &checksums);
    tsr__free(checksums);
    if (status == TSR_OK)
        status = tsr__metadata_read(header, 8 + size, key, out);
    tsr__free(header);
    return status;
}

static tsr_status read_file(const char *path, const char *key, size_t size, char *text)
{
    tsr__metadata metadata = {0};
    tsr__file file;
    tsr_status status = tsr__file_open(path, &file);
    if (status == TSR_OK) {
        status = read_metadata(&file, key, &metadata);
        tsr__file_close(&file);
    }
    if (status == TSR_OK)
        status = tsr__metadata_give(who, path, key, tsr__metadata_find(&metadata, key), size, text);
    else if (status != TSR_ERR_NO_MEMORY)
        status = tsr__parts_explain(path, tsr__fail_context(status, "%s: %s", who, path));
    tsr__metadata_finish(&metadata);
    return status;
}

static tsr_status read_parts(const char *path, tsr_comm *comm, const char *key, size_t size,
                             char *text)
{
    tsr__parts parts = {0};
    TSR__TRY(tsr__parts_open(who, path, comm, &parts));
    const tsr_status status = tsr__metadata_give(
        who, path, key, tsr__metadata_find(&parts.parts[0].metadata, key), size, text);
    tsr__parts_finish(&parts);
    return status;
}

static tsr_status check_arguments(const char *path, const char *key, const char *text,
                                  const tsr_checkpoint_params *params, bool *parts)
{
    TSR__REQUIRE(path && key && text, "%s: %s is NULL", who, !path ? "path" : key ? "text" : "key");
    TSR__TAKE(tsr_checkpoint_params, params);
    *parts = params->parts;
    return TSR_OK;
}

tsr_status tsr_checkpoint_metadata(const char *path, tsr_comm *comm,
                                   const tsr_checkpoint_params *params, const char *key,
                                   size_t size, char *text)
{
    bool parts = false;
    TSR__TRY(tsr__checkpoint_agree(comm, who, check_arguments(path, key, text, params, &parts)));
    return tsr__checkpoint_agree(comm, who,
                                 parts ? read_parts(path, comm, key, size, text)
                                       : read_file(path, key, size, text));
}
