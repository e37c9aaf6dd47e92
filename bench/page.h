/* tessera bench report: one page of what was measured, for people who were not there. */
#ifndef TSR_BENCH_PAGE_H
#define TSR_BENCH_PAGE_H

/* argv[0] is "report". Returns an exit code. */
int bench_page_run(int argc, char **argv);

#endif
