#include "bench/compare.h"
#include "bench/page.h"
int bench_compare_run(int argc, char **argv)
{
    (void)argc, (void)argv;
    return 1;
}
int bench_page_run(int argc, char **argv)
{
    (void)argc, (void)argv;
    return 1;
}
