/* Parses any bytes as the documents of a cluster: a description, and after zero bytes the outputs
 * of tessera bench link and tessera bench rates, which may be absent. */
#include "tessera/planner.h"

#include "fuzz/fuzz.h"

/* An error begins with the name of the document that is wrong. */
static void check_refusal(tsr_status status)
{
    const char *text = tsr_last_error();
    FUZZ_CHECK(status == TSR_ERR_INVALID);
    FUZZ_CHECK(strncmp(text, "description: ", 13) == 0 || strncmp(text, "links: ", 7) == 0 ||
               strncmp(text, "rates: ", 7) == 0);
}

static void check_cluster(const tsr_cluster *cluster)
{
    const int hosts = tsr_cluster_host_count(cluster), ranks = tsr_cluster_rank_count(cluster);
    int sum = 0;
    FUZZ_CHECK(hosts >= 1 && hosts <= TSR_CLUSTER_MAX_HOSTS);
    FUZZ_CHECK(ranks >= hosts && ranks <= TSR_CLUSTER_MAX_RANKS);
    for (int i = 0; i < hosts; i++) {
        tsr_cluster_host_info host = TSR_INIT(tsr_cluster_host_info);
        FUZZ_CHECK(tsr_cluster_get_host(cluster, i, &host) == TSR_OK);
        FUZZ_CHECK(host.first_rank == sum && host.ranks >= 1 && host.name[0] != '\0');
        FUZZ_CHECK(host.processors >= 0);
        sum += host.ranks;
    }
    FUZZ_CHECK(sum == ranks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tsr_cluster *cluster = NULL;
    char *copy = calloc(size + 3, 1); /* three texts, the last of which may be empty */
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data, size);
    const char *links = copy + strlen(copy) + 1,
               *rates = links < copy + size ? links + strlen(links) + 1 : copy + size;
    const bool has_links = links < copy + size, has_rates = rates < copy + size;
    const tsr_status status =
        tsr_cluster_create(tsr_cluster_params(.description_text = copy,
                                              .links_text = has_links && *links ? links : NULL,
                                              .rates_text = has_rates && *rates ? rates : NULL),
                           &cluster);
    if (status == TSR_OK)
        check_cluster(cluster);
    else
        check_refusal(status);
    FUZZ_CHECK((status == TSR_OK) == (cluster != NULL));
    tsr_cluster_destroy(&cluster);
    free(copy);
    return 0;
}
