"""Operations that nothing is known of but their operands."""
