"""Rules of tables without settings and decisions of people, for plans that a test makes itself."""

from __future__ import annotations

from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.planning.inputs import TableRules
from cdc_assets.planning.recipe import Recipes

TABLE_RULES = TableRules(Recipes(CsvOptions()))
"""Rules for the tables of CSV files that are written with TiCDC's defaults."""
