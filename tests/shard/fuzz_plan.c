/* Parses any bytes as a plan in JSON. */
#include "fuzz/fuzz.h"
#include "shard/plan/shard_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tsr_shard_plan *plan = NULL, *again = NULL;
    tsr_status status = tsr_shard_plan_load_json((const char *)data, size, &plan);
    if (status != TSR_OK) {
        fuzz_check_refusal(status, "plan");
        return 0;
    }
    size_t written = 0;
    FUZZ_CHECK(tsr_shard_plan_check(plan, 0, NULL) == TSR_OK);
    FUZZ_CHECK(tsr_shard_plan_save_json(plan, 0, NULL, &written) == TSR_OK);
    char *text = malloc(written);
    FUZZ_CHECK(text != NULL && tsr_shard_plan_save_json(plan, written, text, &written) == TSR_OK);
    FUZZ_CHECK(tsr_shard_plan_load_json(text, written, &again) == TSR_OK);
    FUZZ_CHECK(tsr__plan_equal(plan, again));
    free(text);
    tsr_shard_plan_destroy(&plan);
    tsr_shard_plan_destroy(&again);
    return 0;
}
