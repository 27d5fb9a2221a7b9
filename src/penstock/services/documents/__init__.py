"""Apply, delete, compare and export texts of documents."""
