/* Mistakes in adapters: wrong files and arguments, and failed allocations. */
#include <unistd.h>

#include "base/fault.h"
#include "model/lora/lora.h"
#include "model/lora_run.h"
#include "parallel/spmd.h"

/* A PEFT folder with one module, whose files a case may spoil. */
typedef struct spoilt {
    const char *config;          /* members of adapter_config.json, or NULL */
    const char *name_a, *name_b; /* NULL: the tensor is missing */
    int rows_a, columns_a, rows_b, columns_b;
} spoilt;

#define MODULE "base_model.model.model.layers.0.self_attn.q_proj.lora_"
static const spoilt correct = {
    "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": \"all-linear\"",
    MODULE "A.weight",
    MODULE "B.weight",
    2,
    64,
    64,
    2};

/* All values are 0. */
static void write_spoilt(const spoilt *s, const char *folder)
{
    char path[256];
    static float zeros[64 * 64];
    tsr_checkpoint_entry entries[2];
    int count = 0;
    const struct {
        const char *name;
        int rows, columns;
    } halves[] = {{s->name_a, s->rows_a, s->columns_a}, {s->name_b, s->rows_b, s->columns_b}};
    for (int i = 0; i < 2; i++)
        if (halves[i].name)
            entries[count++] =
                (tsr_checkpoint_entry){.struct_size = sizeof *entries,
                                       .name = halves[i].name,
                                       .dtype = TSR_F32,
                                       .ndim = 2,
                                       .shape = {halves[i].rows, halves[i].columns},
                                       .shard_dim = -1,
                                       .count = (uint64_t)(halves[i].rows * halves[i].columns),
                                       .data = zeros};
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    OK(tsr_checkpoint_save(path, NULL, NULL, count, entries, NULL));
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    FILE *file = fopen(path, "wb");
    CHECK(file && fprintf(file, "{%s}", s->config) > 0, "%s cannot be written", path);
    fclose(file);
}

CASE(lora_mistakes, "lora: mistakes are named, and nothing is attached")
{
    if (ranks > 1) {
        case_skip("one rank reads the same files");
        return;
    }
    lora_run r = lora_open_plain("lora_base");
    json_error_t error;
    r.recorded = json_load_file(FOLDER "lora_trajectory.json", 0, &error);
    const char *folder = lora_scratch();
    float *base = lora_prompt_logits(&r);
    tsr_lora_params params = TSR_INIT(tsr_lora_params);
    params.stack = r.stack;
#define REFUSED(status, text, ...)                                                                 \
    do {                                                                                           \
        spoilt s = correct;                                                                        \
        __VA_ARGS__;                                                                               \
        write_spoilt(&s, folder);                                                                  \
        FAILS(tsr_lora_load(folder, &params, &r.lora), status, text);                              \
    } while (0)
    REFUSED(TSR_ERR_NOT_FOUND,
            "lora: the file has " MODULE "A.weight, but not its other half, " MODULE "B.weight",
            s.name_b = NULL);
    REFUSED(TSR_ERR_NOT_FOUND,
            "lora: the file has " MODULE "B.weight, but not its other half, " MODULE "A.weight",
            s.name_a = NULL);
    REFUSED(TSR_ERR_INVALID, "lora: tensor " MODULE "A.weight is [2,32]; the model needs [2,64]",
            s.columns_a = 32);
    REFUSED(TSR_ERR_INVALID, "lora: tensor " MODULE "B.weight is [64,3]; the model needs [64,2]",
            s.columns_b = 3);
    REFUSED(TSR_ERR_INVALID,
            "lora: tensor " MODULE "A.weight has rank 3; adapter_config.json says 2", s.rows_a = 3;
            s.columns_b = 3);
    REFUSED(TSR_ERR_INVALID,
            "lora: the model has no weight for the adapter's tensor "
            "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight (2 layers of llama)",
            s.name_a = "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight";
            s.name_b = "base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight");
#define LORA "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4"
    REFUSED(TSR_ERR_UNSUPPORTED,
            "adapter_config.json: modules_to_save is lm_head, which is not supported",
            s.config = LORA ", \"modules_to_save\": [\"lm_head\"]");
    REFUSED(TSR_ERR_NOT_FOUND,
            "lora: adapter_config.json says use_dora, but there is no tensor "
            "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
            s.config = LORA ", \"use_dora\": true");
    REFUSED(TSR_ERR_UNSUPPORTED, "adapter_config.json: bias is all, which is not supported",
            s.config = LORA ", \"bias\": \"all\"");
    REFUSED(TSR_ERR_UNSUPPORTED, "adapter_config.json: peft_type is 'IA3'; LORA is supported",
            s.config = "\"peft_type\": \"IA3\"");
    REFUSED(TSR_ERR_UNSUPPORTED,
            "adapter_config.json: rank_pattern has '.*q_proj'; only names of modules are "
            "supported, not regular expressions",
            s.config = LORA ", \"rank_pattern\": {\".*q_proj\": 3}");
    REFUSED(TSR_ERR_INVALID, "adapter_config.json: there is no lora_alpha",
            s.config = "\"peft_type\": \"LORA\", \"r\": 2");
    REFUSED(TSR_ERR_INVALID,
            "adapter_config.json: lora_alpha is 2e+30; a number above 0, at most 1e+30, is needed",
            s.config = "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 2e30");
    REFUSED(TSR_ERR_INVALID, "adapter_config.json: alpha_pattern of 'q_proj' is 1e+31",
            s.config = LORA ", \"alpha_pattern\": {\"q_proj\": 1e31}");
#undef REFUSED
    params.alpha = 2e30;
    FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID,
          "lora: alpha is 2e+30; a number above 0, at most 1e+30, is needed");
    params.alpha = 0;
    params.rank = -1;
    FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID,
          "lora: rank is -1; 1 to 65536 are possible");
    params.rank = 0;
    params.dropout = 1;
    FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID,
          "lora: dropout is 1; 0 <= dropout < 1 is needed");
    params.dropout = 0;
    static const char *const lists[] = {"", "2", "1-0", "0-2", "0,", "0-", "x", "0 1", "-1"};
    params.targets = TSR_LORA_Q;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char text[160];
        snprintf(text, sizeof text,
                 "lora: layers is '%s'; numbers from 0 to 1 and ranges of them, such as 0-3,7, are "
                 "needed",
                 lists[i]);
        params.layers = lists[i];
        FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID, text);
    }
    static const char *const good[] = {"1", "0,1", "0-1"};
    for (int i = 0; i < 3; i++) {
        tsr_lora_info info = TSR_INIT(tsr_lora_info);
        params.layers = good[i];
        OK(tsr_lora_create(&params, &r.lora));
        OK(tsr_lora_get_info(r.lora, &info));
        CHECK(info.parameters == (i == 0 ? 1 : 2) * 8 * (64 + 64), "layers %s: %d parameters",
              good[i], (int)info.parameters);
        tsr_lora_destroy(&r.lora);
    }
    params.layers = NULL;
    params.targets = 512;
    FAILS(tsr_lora_create(&params, &r.lora), TSR_ERR_INVALID,
          "lora: targets is 0x200; of these, 0x1ff are possible");
    float *after = lora_prompt_logits(&r);
    CHECK(memcmp(after, base, PROMPT * VOCABULARY * sizeof *base) == 0,
          "an adapter that was refused changes logits");

    /* What the patterns say counts, and comes back. */
    spoilt s = correct;
    s.config = LORA ", \"use_rslora\": true, \"rank_pattern\": {\"self_attn.q_proj\": 3}, "
                    "\"alpha_pattern\": {\"q_proj\": 6}";
    s.rows_a = s.columns_b = 3;
    write_spoilt(&s, folder);
    params.targets = 0;
    OK(tsr_lora_load(folder, &params, &r.lora));
    OK(tsr_lora_save(r.lora, folder, TSR_LORA_PEFT, NULL));
    tsr_lora_destroy(&r.lora);
    OK(tsr_lora_load(folder, &params, &r.lora));
    tsr_lora_info info = TSR_INIT(tsr_lora_info);
    OK(tsr_lora_get_info(r.lora, &info));
    CHECK(info.rank == 2 && info.alpha == 4 && info.rank_stabilised && info.targets == TSR_LORA_Q &&
              info.parameters == 3 * 128,
          "rank %d, alpha %g, targets %u", info.rank, info.alpha, info.targets);
    char path[256];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    remove(path);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    remove(path);
    rmdir(folder);
    free(base);
    free(after);
    lora_finish(&r);
}

/* Layers of Qwen3-Next have one A for q, k, v and z of a delta net, which GGUF files have in two
 * tensors. */
CASE(lora_two_matrices, "lora: two matrices in a GGUF file for one of the layers are refused")
{
    if (ranks > 1) {
        case_skip("one rank reads the same files");
        return;
    }
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_lora *lora = NULL;
    tsr_shard_list *list = NULL;
    const char *folder = lora_scratch();
    char path[256];
    OK(tsr_model_file_open(TEST_DATA "/model/families/qwen3next/hf", &file));
    OK(tsr_model_open(file, tsr_model_params(.group = group), &model));
    const tsr_lora_params *params = tsr_lora_params(.stack = tsr_model_stack(model), .rank = 1);
    OK(tsr_lora_create(params, &lora));
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    OK(tsr_lora_save(lora, path, TSR_LORA_GGUF, NULL));
    tsr_lora_destroy(&lora);
    OK(tsr_shard_list_open(path, &list));
    FILE *changed = fopen(path, "r+b");
    CHECK(changed, "%s cannot be opened", path);
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(list, i);
        if (strcmp(p->name, "blk.1.attn_gate.weight.lora_a") == 0)
            CHECK(fseek(changed, (long)p->offset_bytes, SEEK_SET) == 0 &&
                      fwrite("\0\0\0\0", 4, 1, changed) == 1,
                  "%s cannot be changed", path);
    }
    fclose(changed);
    tsr_shard_list_destroy(&list);
    FAILS(
        tsr_lora_load(path, params, &lora), TSR_ERR_UNSUPPORTED,
        "lora: tensors blk.1.attn_qkv.weight.lora_a and blk.1.attn_gate.weight.lora_a differ, but "
        "layers of qwen3_next have one A for both");
    remove(path);
    rmdir(folder);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
}

CASE(lora_allocations, "lora: every allocation of creating and loading fails in turn")
{
    if (ranks > 1) {
        case_skip("other ranks would wait");
        return;
    }
    lora_run r = lora_open_plain("lora_base");
    watch_full_batches(true);
    for (int load = 0; load < 2; load++)
        for (uint64_t nth = 0;; nth++) {
            const tsr_lora_params params = {
                .struct_size = sizeof params, .stack = r.stack, .targets = load ? 0 : TSR_LORA_Q};
            went_on = false;
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            const tsr_status status = load ? tsr_lora_load(FOLDER "lora_final", &params, &r.lora)
                                           : tsr_lora_create(&params, &r.lora);
            const bool reached = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            tsr_lora_destroy(&r.lora);
            CHECK(!r.stack->adapters, "allocation %d: an adapter is attached", (int)nth);
            if (!reached) {
                OK(status);
                CHECK(nth > 10, "only %d allocations", (int)nth);
                break;
            }
            CHECK((status == TSR_ERR_NO_MEMORY) == !went_on, "allocation %d: %s", (int)nth,
                  tsr_status_name(status));
        }
    watch_full_batches(false);
    lora_finish(&r);
}
