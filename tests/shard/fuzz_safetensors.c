/* Parses any bytes as a safetensors file. */
#include "fuzz/fuzz.h"
#include "shard/formats/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tsr_shard_list *list = NULL;
    tsr_status status = tsr__list_parse(TSR_SHARD_SAFETENSORS, data, size, size, &list);
    if (status == TSR_OK)
        fuzz_check_list(list, size);
    else
        fuzz_check_refusal(status, "safetensors");
    tsr_shard_list_destroy(&list);

    /* Parses the same bytes as the beginning of a file of the largest size. */
    status = tsr__list_parse(TSR_SHARD_SAFETENSORS, data, size, INT64_MAX, &list);
    if (status == TSR_OK)
        fuzz_check_list(list, INT64_MAX);
    else
        fuzz_check_refusal(status, "safetensors");
    tsr_shard_list_destroy(&list);
    return 0;
}
