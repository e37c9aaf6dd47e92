/* Writes the results of a run in any format. */
#include <stdlib.h>

#include "bench/report/page.h"
#include "bench/report/report.h"
#include "cli/lib/json.h"

static void write_tables(const bench_context *context, const bench *what, bench_format format,
                         FILE *out)
{
    char problem[BENCH_PROBLEM];
    bench_document run;
    if (!bench_document_take(bench_report_document(context, what),
                             what != NULL ? what->name : "complete run", &run, problem)) {
        cli_say("bench: the results cannot be shown as tables: %s", problem);
        return;
    }
    page_context page = page_of(&run, 1);
    page.out = out;
    if (format == BENCH_AS_CSV)
        page_csv(&page);
    else
        page_markdown(&page);
    free(page.series);
    bench_document_free(&run);
}

void bench_report_write(const bench_context *context, const bench *what, bench_format format,
                        FILE *out)
{
    if (format == BENCH_AS_TEXT)
        bench_report_text(context, what);
    else if (format == BENCH_AS_JSON)
        cli_json_write(bench_report_document(context, what), out);
    else
        write_tables(context, what, format, out);
}
