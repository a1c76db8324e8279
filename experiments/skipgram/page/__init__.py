"""What is told: tables, figures, verdicts and the page, made of records alone and read without torch."""
