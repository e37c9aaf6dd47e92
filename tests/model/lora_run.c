#include "model/lora_run.h"

#include <unistd.h>

#include "parallel/spmd.h"

static const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                            .kind = TSR_PARTITION_UNEVEN};

void lora_make_grid(lora_run *r)
{
    const lora_grid *g = &r->grid;
    const int t = my_rank % g->tensor, d = my_rank / g->tensor % g->data,
              s = my_rank / g->tensor / g->data;
    r->stage = s;
    r->data_rank = d;
    r->partition = uneven;
    if (g->rates) {
        r->partition.kind = TSR_PARTITION_WEIGHTED;
        r->partition.rates = g->rates;
    }
    if (ranks > 1) {
        OK(tsr_comm_split(world, s * g->data + d, t, &r->tensor_comm));
        OK(tsr_comm_split(world, s * g->tensor + t, d, &r->data_comm));
        OK(tsr_comm_split(world, d * g->tensor + t, s, &r->stages));
    }
    OK(tsr_group_create(r->tensor_comm, queue, NULL, &r->tensor));
    OK(tsr_group_create(r->data_comm, queue, NULL, &r->data));
    if (g->stages > 1)
        OK(tsr_pipeline_create(tsr_pipeline_params(.comm = r->stages, .stream = queue),
                               &r->pipeline));
}

tsr_comm *lora_stages_of(const lora_run *r)
{
    return r->grid.stages > 1 ? r->stages : NULL;
}

void lora_open_base(lora_run *r, const char *base)
{
    tsr_model_file *file = NULL;
    char path[512];
    snprintf(path, sizeof path, FOLDER "%s", base);
    OK(tsr_model_file_open(path, &file));
    OK(tsr_model_open(file,
                      tsr_model_params(.group = r->tensor, .stages = lora_stages_of(r),
                                       .partition = &r->partition, .recompute = r->grid.recompute),
                      &r->model));
    tsr_model_file_close(&file);
    r->stack = tsr_model_stack(r->model);
}

lora_run lora_open_plain(const char *base)
{
    lora_run r = {.grid = {1, 1, ranks, NULL, false, false, false}};
    lora_make_grid(&r);
    lora_open_base(&r, base);
    return r;
}

void lora_finish(lora_run *r)
{
    tsr_optimizer_destroy(&r->optimizer);
    tsr_lora_destroy(&r->lora);
    tsr_model_close(&r->model);
    tsr_pipeline_destroy(&r->pipeline);
    tsr_group_destroy(&r->data);
    tsr_group_destroy(&r->tensor);
    tsr_comm_destroy(&r->stages);
    tsr_comm_destroy(&r->data_comm);
    tsr_comm_destroy(&r->tensor_comm);
    json_decref(r->recorded);
    free(r->text);
}

float *lora_prompt_logits(lora_run *r)
{
    double ids[PROMPT];
    json_t *list = json_object_get(json_object_get(r->recorded, "prompt"), "ids");
    for (size_t i = 0; i < PROMPT; i++)
        ids[i] = json_number_value(json_array_get(list, i));
    tsr_tensor *x = tensor_of(TSR_I32, 2, (int64_t[]){1, PROMPT}, ids), *hidden = NULL,
               *logits = NULL;
    float *out = calloc(PROMPT * VOCABULARY, sizeof *out);
    CHECK(out, "no memory");
    OK(tsr_stack_forward(r->stack, x, NULL, NULL, &hidden));
    OK(tsr_stack_head_forward(r->stack, hidden, NULL, &logits));
    OK(tsr_stack_gather_logits(r->stack, logits, out));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&hidden);
    tsr_tensor_destroy(&logits);
    return out;
}

double lora_largest_difference(const float *a, const float *b)
{
    double worst = 0;
    for (int i = 0; i < PROMPT * VOCABULARY; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

/* Files ---------------------------------------------------------------------------------------- */

const char *lora_scratch(void)
{
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/tessera-lora-XXXXXX");
    CHECK(my_rank != 0 || mkdtemp(folder), "no folder");
    if (ranks > 1)
        OK(tsr_comm_broadcast(world, folder, sizeof folder, TSR_U8, 0, NULL));
    return folder;
}

void lora_remove_adapter(const char *folder, const char *name)
{
    char path[256];
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    if (my_rank != 0)
        return;
    snprintf(path, sizeof path, "%s/%s/adapter_config.json", folder, name);
    remove(path);
    snprintf(path, sizeof path, "%s/%s/adapter_model.safetensors", folder, name);
    remove(path);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
    rmdir(folder);
}

lora_tensors lora_open_tensors(const char *path)
{
    lora_tensors t = {.file = fopen(path, "rb")};
    CHECK(t.file, "%s cannot be opened", path);
    OK(tsr_shard_list_open(path, &t.list));
    return t;
}

float *lora_read_tensor(const lora_tensors *t, const char *name, int64_t *count)
{
    for (uint64_t i = 0; i < tsr_shard_list_param_count(t->list); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(t->list, i);
        if (strcmp(p->name, name) != 0)
            continue;
        *count = p->shape[0] * p->shape[1];
        float *values = calloc((size_t)*count, sizeof *values);
        fseek(t->file, (long)p->offset_bytes, SEEK_SET);
        CHECK(values && fread(values, sizeof *values, (size_t)*count, t->file) == (size_t)*count,
              "%s cannot be read", name);
        return values;
    }
    CHECK(false, "there is no tensor %s", name);
    return NULL;
}

void lora_close_tensors(lora_tensors *t)
{
    tsr_shard_list_destroy(&t->list);
    fclose(t->file);
}

void lora_compare_tensors(const char *path, const char *wanted, double tolerance)
{
    lora_tensors got = lora_open_tensors(path), want = lora_open_tensors(wanted);
    const uint64_t count = tsr_shard_list_param_count(want.list);
    CHECK(tsr_shard_list_param_count(got.list) == count, "%s has %d tensors, not %d", path,
          (int)tsr_shard_list_param_count(got.list), (int)count);
    for (uint64_t i = 0; i < count; i++) {
        const char *name = tsr_shard_list_param(want.list, i)->name;
        int64_t elements, others;
        float *a = lora_read_tensor(&got, name, &others),
              *b = lora_read_tensor(&want, name, &elements);
        double norm = 0, error = 0;
        CHECK(elements == others, "%s has another shape", name);
        for (int64_t e = 0; e < elements; e++) {
            norm += (double)b[e] * (double)b[e];
            error += ((double)a[e] - (double)b[e]) * ((double)a[e] - (double)b[e]);
        }
        CHECK(sqrt(error) <= tolerance * sqrt(norm), "%s differs by %g of its norm", name,
              sqrt(error / norm));
        free(a);
        free(b);
    }
    lora_close_tensors(&got);
    lora_close_tensors(&want);
}
