/* The server's metrics in Prometheus's text format. */
#include <inttypes.h>
#include <stdarg.h>

#include "cli/serve/serve.h"

/* The upper bounds of the histograms' buckets, in seconds. */
static const double bounds[SERVE_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                             0.5,   1,    2.5,   5,    10,  60};

void serve_histogram_add(serve_histogram *histogram, double value)
{
    int bucket = 0;
    while (bucket < SERVE_BUCKETS && value > bounds[bucket])
        bucket++;
    histogram->counts[bucket]++;
    histogram->sum += value;
}

static void CLI_PRINTF(2, 3) add(cli_text *out, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    cli_text_add(out, line, size > 0 ? (size_t)size : 0);
}

static void add_value(cli_text *out, const char *name, const char *type, const char *help,
                      uint64_t value)
{
    add(out, "# HELP tessera_%s %s\n# TYPE tessera_%s %s\n", name, help, name, type);
    add(out, "tessera_%s %" PRIu64 "\n", name, value);
}

static void add_seconds(cli_text *out, const char *name, const char *help, double value)
{
    add(out, "# HELP tessera_%s %s\n# TYPE tessera_%s counter\n", name, help, name);
    add(out, "tessera_%s %.9g\n", name, value);
}

static void add_histogram(cli_text *out, const char *name, const char *help,
                          const serve_histogram *histogram)
{
    uint64_t count = 0;
    add(out, "# HELP tessera_%s %s\n# TYPE tessera_%s histogram\n", name, help, name);
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        count += histogram->counts[i];
        add(out, "tessera_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], count);
    }
    count += histogram->counts[SERVE_BUCKETS];
    add(out, "tessera_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    add(out, "tessera_%s_sum %.9g\ntessera_%s_count %" PRIu64 "\n", name, histogram->sum, name,
        count);
}

void serve_metrics_write(const serve_server *s, cli_text *out)
{
    const serve_metrics *m = &s->metrics;
    add_value(out, "requests_total", "counter", "Requests that were accepted.", m->requests);
    add_value(out, "requests_refused_total", "counter",
              "Requests that were answered with an error.", m->refused);
    add_value(out, "requests_cancelled_total", "counter", "Requests whose client went away.",
              m->cancelled);
    add_value(out, "requests_failed_total", "counter", "Requests that the server did not complete.",
              m->failed);
    add_value(out, "requests_waiting", "gauge", "Texts in the queue.", (uint64_t)s->waiting);
    add_value(out, "requests_running", "gauge", "Texts that are being generated.",
              (uint64_t)s->running);
    add_value(out, "slow_senders_total", "counter",
              "Connections that were ended because sending a request took too long.", m->slow);
    add_value(out, "request_body_bytes", "gauge",
              "Bytes of bodies of requests that are received, wait to be read, or are being read.",
              s->body_bytes);
    add_value(out, "prompt_tokens_total", "counter", "Tokens of prompts.", m->prompt_tokens);
    add_value(out, "generated_tokens_total", "counter", "Tokens that were generated.",
              m->generated_tokens);
    add_value(out, "prompt_tokens_cached_total", "counter",
              "Tokens of prompts that were found in the prefix cache.", s->stats.cached_tokens);
    add_value(out, "prompt_tokens_computed_total", "counter",
              "Tokens of prompts that were computed, some of them again.", s->stats.prompt_tokens);
    add_value(out, "draft_tokens_total", "counter", "Drafts of tokens that were computed.",
              s->stats.drafted_tokens);
    add_value(out, "drafted_passes_total", "counter", "Passes for tokens that had drafts.",
              s->stats.drafted_passes);
    add_value(out, "plain_passes_total", "counter", "Passes for tokens without drafts.",
              s->stats.plain_passes);
    add_value(out, "draft_tokens_accepted_total", "counter", "Drafts that were chosen.",
              s->stats.accepted_tokens);
    add_value(out, "preemptions_total", "counter",
              "How often a text had to wait for pages of the cache and was computed again.",
              s->stats.preemptions);
    add_value(out, "prompt_piece_tokens", "gauge",
              "The most tokens of prompts that may be computed between two tokens of a text.",
              (uint64_t)serve_chosen.piece);
    add_value(out, "prompt_piece_tokens_max", "gauge",
              "The most tokens of prompts that were computed between two tokens of a text.",
              s->stats.most_step_tokens);
    add_value(out, "texts_without_pages", "gauge", "Running texts that wait for pages.",
              (uint64_t)s->stats.waiting);
    add_seconds(out, "step_seconds_total", "Time in steps of the model, while texts ran.",
                m->steps);
    add_seconds(out, "between_steps_seconds_total",
                "Time between steps of the model, while texts ran.", m->between_steps);
    add_value(out, "cache_pages", "gauge", "Pages of the cache.", (uint64_t)s->stats.pages);
    add_value(out, "cache_pages_free", "gauge", "Pages that nothing uses.",
              (uint64_t)s->stats.free_pages);
    add_value(out, "cache_pages_prefix", "gauge", "Pages of the prefix cache.",
              (uint64_t)s->stats.prefix_pages);
    add_value(out, "ranks", "gauge", "Processes that divide the model.", (uint64_t)s->ranks);
    add_value(out, "ranks_wanted", "gauge", "The most processes that there were.",
              (uint64_t)s->wanted_ranks);
    add_value(out, "ranks_lost_total", "counter", "Processes that were lost.", m->losses);
    add_value(out, "ranks_joined_total", "counter", "Processes that joined later.", m->joins);
    add_histogram(out, "time_to_first_token_seconds", "From the request to its first token.",
                  &m->first_token);
    add_histogram(out, "time_per_token_seconds", "Between two tokens of a text.", &m->per_token);
}
