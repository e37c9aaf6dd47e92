// A program in C++, which fills params and results as base.h says, and calls functions of several modules.
#include <cstdio>
#include <cstring>

#include <tessera/tessera.h>

static int errors;

static void expect(bool right, const char *what)
{
    if (right)
        return;
    std::printf("%s: %s\n", what, tsr_last_error());
    errors++;
}

static void partitions()
{
    auto params = TSR_INIT(tsr_partition_params);
    const double rates[] = {3, 1};
    params.kind = TSR_PARTITION_WEIGHTED;
    params.rates = rates;
    tsr_shard_range ranges[2];
    expect(tsr_partition(8, 2, &params, ranges) == TSR_OK && ranges[0].count == 6, "tsr_partition");
    tsr_partition_params unset = {};
    expect(tsr_partition(8, 2, &unset, ranges) == TSR_ERR_INVALID, "struct_size 0");
}

static void clusters()
{
    auto params = TSR_INIT(tsr_cluster_params);
    params.description_text = "{\"hosts\": [{\"name\": \"left\", \"ranks\": [{\"gflops\": 10, \"memory_gbytes_per_second\": 1}]}]}";
    tsr_cluster *cluster = nullptr;
    expect(tsr_cluster_create(&params, &cluster) == TSR_OK, "tsr_cluster_create");
    auto host = TSR_INIT(tsr_cluster_host_info);
    expect(tsr_cluster_get_host(cluster, 0, &host) == TSR_OK && std::strcmp(host.name, "left") == 0, "tsr_cluster_get_host");
    tsr_cluster_destroy(&cluster);
}

static void communicators()
{
    auto params = TSR_INIT(tsr_comm_params);
    params.bootstrap = TSR_BOOTSTRAP_SINGLE;
    tsr_comm *comm = nullptr;
    expect(tsr_comm_create(&params, &comm) == TSR_OK && tsr_comm_size(comm) == 1, "tsr_comm_create");
    tsr_comm_destroy(&comm);
}

static tsr_status fill(void *self, uint64_t capacity, int64_t *indices, uint8_t *, uint64_t *count)
{
    auto &next = *static_cast<int64_t *>(self);
    for (*count = 0; *count < capacity && next < 3; ++*count)
        indices[*count] = next++;
    return TSR_OK;
}

static tsr_status set_epoch(void *self, int64_t)
{
    *static_cast<int64_t *>(self) = 0;
    return TSR_OK;
}

static void samplers()
{
    auto ops = TSR_INIT(tsr_sampler_ops);
    ops.fill = fill;
    ops.set_epoch = set_epoch;
    int64_t next = 0;
    tsr_sampler *sampler = nullptr;
    expect(tsr_sampler_create(&ops, &next, &sampler) == TSR_OK, "tsr_sampler_create");
    int64_t index = 0;
    uint64_t count = 0;
    expect(tsr_sampler_next(sampler, 1, &index, nullptr, &count) == TSR_OK && count == 1 && index == 0,
           "tsr_sampler_next");
    tsr_sampler_destroy(&sampler);
}

// Zero itself, where it is not the default.
static void zeros()
{
    auto params = TSR_INIT(tsr_init_params);
    params.deviation = static_cast<float>(TSR_ZERO);
    auto layer = TSR_INIT(tsr_linear_params);
    layer.init = &params;
    tsr_layer *out = nullptr;
    expect(tsr_column_linear_create(&layer, &out) != TSR_OK && out == nullptr, "a layer without sizes");
}

int main()
{
    partitions();
    clusters();
    communicators();
    samplers();
    zeros();
    return errors != 0;
}
