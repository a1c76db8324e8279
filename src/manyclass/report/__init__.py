"""One self-contained HTML page from tables, figures and text (`manyclass.report.page`)."""
