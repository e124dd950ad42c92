package wire

// CheckValues is [Check] for everything that Parse found.
func (s *Sections) CheckValues() error {
	for _, section := range [...][]byte{
		s.DeliveryAnnotations, s.MessageAnnotations, s.Properties, s.ApplicationProperties, s.Footer, s.Value,
	} {
		if section == nil {
			continue
		}
		if _, err := Check(section); err != nil {
			return err
		}
	}
	if s.Body != BodySequence {
		return nil
	}
	var err error
	for rest := s.body; len(rest) > 0 && err == nil; {
		rest, err = Check(rest)
	}
	return err
}

// CheckProperties returns an error for a property that is a string where the
// standard has a symbol, or the other way round: Parse takes either.
//
// Spec: 3.2.4.
func (s *Sections) CheckProperties() error {
	if s.Properties == nil {
		return nil
	}
	var f fields
	if _, err := f.openList("properties", s.Properties); err != nil {
		return err
	}
	for i := range propCount {
		v := f.value()
		if v == nil {
			continue
		}
		switch i {
		case PropContentType, PropContentEncoding:
			if !isSymbol(v[0]) {
				f.wrong(v[0], "symbol")
			}
		case PropTo, PropSubject, PropReplyTo, PropGroupID, PropReplyToGroupID:
			if !isString(v[0]) {
				f.wrong(v[0], "string")
			}
		}
	}
	return f.end()
}
