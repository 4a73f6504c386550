-- The account that a court asks about: nothing of it is erased, and nobody is warned, until that is over.
SELECT ebb.place_hold('accounts', '2', 'court order 12/2026', by => 'legal');
