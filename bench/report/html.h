/* Writing HTML. What comes from outside goes through html_text or a %s of html_line only, which
 * escape it; no other function takes text that is not written in our own sources. */
#ifndef TSR_BENCH_REPORT_HTML_H
#define TSR_BENCH_REPORT_HTML_H

#include <stdio.h>

/* Text between tags or within a quoted attribute: & < > " ' become entities, and what is not UTF-8,
 * or not allowed in XML, U+FFFD. */
void html_text(FILE *out, const char *text);

/* Our own markup in `format`, with three conversions: %s is escaped text, %d an int and %f a number
 * of the page's geometry, with up to two decimals. */
void html_line(FILE *out, const char *format, ...);

#endif
