/* Parses any bytes as a list of parameters in JSON. */
#include "fuzz/fuzz.h"
#include "shard/formats/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tsr_shard_list *list = NULL;
    tsr_status status = tsr__list_parse(TSR_SHARD_JSON, data, size, size, &list);
    if (status == TSR_OK)
        fuzz_check_list(list, 0);
    else if (strcmp(tsr_last_error(), "shard: an index cannot be read from memory") != 0)
        fuzz_check_refusal(status, "json");
    tsr_shard_list_destroy(&list);
    return 0;
}
