"""What models lose at each timestep, and what training changes there."""
